"""A made-up server whose steps take turns: what a cell would store of it, and the truth."""

import random
from dataclasses import dataclass, field, replace

from bench.model import EffectiveConfig, RequestSample, RequestStatus, TelemetryPoint
from tuner.evaluate.alternation import Alternation

STEP_NS = 5_000_000
PER_DRAFT_NS = 1_000_000
PREFILL_NS = 12_000_000


@dataclass
class Cell:
    """What was stored of a cell, and the steps of each of its verify batches."""

    samples: list[RequestSample]
    telemetry: list[TelemetryPoint]
    log: list[str]
    effective: EffectiveConfig
    steps: list[int]
    switched: int


@dataclass
class _Request:
    index: int
    sent_ns: int
    end_tok: int
    tok: int = 0
    correct: list[int] = field(default_factory=list)
    events: list[tuple[int, int]] = field(default_factory=list)


@dataclass
class _Ticks:
    """Writes a decode line every so many batches, and sets the gauges."""

    every: int
    log: list[str]
    telemetry: list[TelemetryPoint]
    batches: int = 0
    began_ns: int = 0
    steps: int = 0
    correct: int = 0

    def batch(self, now: int, running: list[_Request], in_use: int) -> None:
        self.batches += 1
        self.steps += len(running)
        self.correct += sum(request.correct[-1] for request in running)
        if self.batches % self.every:
            return
        accept_len = 1 + self.correct / self.steps
        speed = (self.steps + self.correct) / (now - self.began_ns) * 1e9
        # The gauge is of the steps in use, which the line's last batch may have changed.
        gauges = {
            "sglang:spec_num_steps": in_use,
            "sglang:spec_accept_length": accept_len,
            "sglang:gen_throughput": speed,
        }
        self.telemetry += [
            TelemetryPoint(t_ns=now + 1000, source="server", name=name, value=value)
            for name, value in gauges.items()
        ]
        context_tok = 100 * len(running) + sum(request.tok for request in running)
        self.log.append(
            f"[2026-01-01 00:00:00 TP0] Decode batch, #running-req: {len(running)}, "
            f"#token: {context_tok}, token usage: 0.01, accept len: {accept_len:.2f}, "
            f"accept rate: 0.50, cuda graph: True, gen throughput (token/s): {speed:.2f}, "
            "#queue-req: 0"
        )
        self.began_ns, self.steps, self.correct = now, 0, 0


def effective(asked: Alternation, *, overlapped=False, log_interval=1, **more):
    return EffectiveConfig(
        speculative=tuple(
            {"adaptive": True, "eagle_topk": 1, "num_steps": asked.many, **more}.items()
        ),
        other=(
            ("decode_log_interval", str(log_interval)),
            ("disable_overlap_schedule", str(not overlapped).lower()),
        ),
        version="0.5.23",
        simulated=True,
    )


def alternating_cell(
    asked: Alternation,
    *,
    seed: int = 1,
    requests: int = 12,
    concurrency: int = 1,
    output_tok: int = 90,
    spread: float = 0.33,
    accept: tuple[float, ...] = (0.7, 0.6, 0.5, 0.4),
    jitter_ns: int = 0,
    noise: float = 0.02,
    overlapped: bool = False,
    log_interval: int = 1,
    before: int | None = None,
    decode_lines: bool = False,
) -> Cell:
    """Serve a closed loop; other cells' batches, `before` of them, came first.

    With overlap the steps of a batch are those decided one batch earlier, and one more batch
    passes unseen whenever all requests have ended.
    """
    rng = random.Random(seed)
    counted = rng.randrange(1000) if before is None else before
    decided = [asked.few if (counted // asked.interval) % 2 == 0 else asked.many]
    log = ["Prefill batch, #new-seq: 1, #new-token: 1", "Cache flushed successfully!"]
    waiting = [
        _Request(n, 0, output_tok + round(rng.uniform(-spread, spread) * output_tok))
        for n in range(requests)
    ]
    truth, running, done, telemetry = [], [], [], []
    ticks = _Ticks(log_interval, log if decode_lines else [], telemetry)
    switched = now = 0

    def decide():
        nonlocal counted, switched
        counted += 1
        steps = asked.few if (counted // asked.interval) % 2 == 0 else asked.many
        if steps != decided[-1]:
            switched += 1
            log.append(
                f"[2026-01-01 00:00:00 TP0] Switch adaptive runtime state: steps {decided[-1]} -> "
                f"{steps}, draft_tokens {decided[-1] + 1} -> {steps + 1}"
            )
        decided.append(steps)

    while waiting or running:
        joining = waiting[: concurrency - len(running)]
        if joining:
            del waiting[: len(joining)]
            log.append(
                f"[2026-01-01 00:00:00 TP0] Prefill batch, #new-seq: {len(joining)}, "
                f"#new-token: {100 * len(joining)}, #queue-req: 0"
            )
            sent = now
            now += PREFILL_NS
            for request in joining:
                request.sent_ns, request.tok = sent, 1
                request.events.append((now + rng.randint(0, jitter_ns), 1))
            running += joining
        # A prefill in between gives time to look at the batch before.
        steps = decided[-2] if overlapped and not joining else decided[-1]
        now += round((STEP_NS + PER_DRAFT_NS * steps) * (1 + rng.gauss(0, noise)))
        truth.append(steps)
        for request in running:
            correct = 0
            while correct < steps and rng.random() < accept[correct]:
                correct += 1
            request.correct.append(correct)
            request.tok = min(request.tok + correct + 1, request.end_tok)
            request.events.append((now + rng.randint(0, jitter_ns), request.tok))
        decide()
        ticks.batch(now, running, decided[-1])
        done += [request for request in running if request.tok >= request.end_tok]
        running = [request for request in running if request.tok < request.end_tok]
        if overlapped and not running:
            decide()
    return Cell(
        samples=[_sample(request) for request in sorted(done, key=lambda r: r.index)],
        telemetry=telemetry,
        log=[*log, "Cache flushed successfully!"],
        effective=effective(asked, overlapped=overlapped, log_interval=log_interval),
        steps=truth,
        switched=switched,
    )


def _sample(request: _Request) -> RequestSample:
    histogram = [request.correct.count(k) for k in range(max(request.correct, default=-1) + 1)]
    return RequestSample(
        cell_id="c",
        index=request.index,
        phase="measure",
        prompt_id="p",
        prompt_sha256="s",
        slot=0,
        seed=1,
        due_ns=request.sent_ns,
        sent_ns=request.sent_ns,
        ended_ns=request.events[-1][0],
        status=RequestStatus.OK,
        event_ns=tuple(at for at, _ in request.events),
        event_tok=tuple(tok for _, tok in request.events),
        output_tok=request.tok,
        spec_verify_ct=len(request.correct),
        spec_num_correct_drafts=sum(request.correct),
        spec_correct_drafts_histogram=tuple(histogram),
    )


def coalesced(sample: RequestSample, at: int) -> RequestSample:
    """The sample with one event lost, its tokens in the next one."""
    return replace(
        sample,
        event_ns=sample.event_ns[:at] + sample.event_ns[at + 1 :],
        event_tok=sample.event_tok[:at] + sample.event_tok[at + 1 :],
    )
