"""Stored runs for the tests of pages: planned, summarised and published as real ones are."""

import random
from dataclasses import replace
from pathlib import Path

from bench.metrics import limit_tok_per_s, summarize
from bench.model import (
    BASELINE,
    EffectiveConfig,
    LaunchRecord,
    RequestSample,
    RequestStatus,
    TelemetryPoint,
    TokenSource,
)
from bench.plan import make_plan
from bench.runner import publish
from bench.scenario import load_scenario
from bench.store import create_run, load_run, new_manifest

SCENARIO = """
name: {name}
question: {question}
target: {{path: org/target, revision: main}}
draft: {{path: org/draft, revision: main}}
server: {{gpus: {gpus}, arguments: [{arguments}]}}
arms:
  baseline: {{}}
  eagle3:
    speculative: {{algorithm: EAGLE3, num_steps: 3, eagle_topk: 1, num_draft_tokens: 4}}
{more_arms}
workloads:
  {workload}: {{input_tok: 64, max_output_tok: 64, sampling: {{temperature: 0}}}}
loads: {{concurrency: [{loads}]}}
measure:
  {{steady_s: 1, requests_per_slot: {per_slot}, warmup_requests_per_slot: 1, pairs: {pairs}}}
{cards}
"""
START_NS = 10**15


def stored_run(
    folder: Path,
    *,
    name="demo",
    question="Does it pay?",
    workload="chat",
    loads=(1, 4),
    pairs=2,
    per_slot=6,
    gain=lambda load: 1.3 if load == 1 else 0.9,
    failed_share=0.0,
    measured=lambda _ordinal, _cell: True,
    error="connection reset",
    simulated=False,
    gpu=True,
    gpus=2,
    more_arms=0,
    cards="",
    categories=(),
    published=True,
):
    """A run in which the arm is `gain(load)` times as fast as the baseline, exactly.

    Cells that `measured` refuses are missing, as after a failed launch. `gpus=0` is a CPU server;
    prompts are of `categories` in turn; `more_arms` are drawn as a tuning study has them; `cards`
    is a `sim:` block.
    """
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "scenario.yaml"
    text = SCENARIO.format(
        name=name,
        question=repr(question),
        workload=workload,
        loads=", ".join(map(str, loads)),
        pairs=pairs,
        per_slot=per_slot,
        gpus=gpus,
        arguments=", ".join([*(['"--tp-size 2"'] if gpus else []), '"--max-running-requests 64"']),
        more_arms="\n".join(_arm(at) for at in range(more_arms)),
        cards=cards,
    )
    file.write_text(text)
    plan = make_plan(load_scenario(file), simulated=False)
    plan = replace(plan, simulated=simulated)
    manifest = new_manifest(
        plan,
        run_id=f"20261129T160346Z-{name}-1a2b3c",
        scenario_text=text,
        command_line=["bench", "run", "demo.yaml"],
        fingerprint={"identity": {"python": "3.11", "gpus": []}, "context": {"boot_id": None}},
    )
    manifest = replace(manifest, started_at="2026-11-29T16:03:46+00:00")
    now = START_NS
    with create_run(folder / "results", scenario_text=text, manifest=manifest) as writer:
        for launch in plan.launches:
            cells = [cell for cell in launch.cells if measured(launch.ordinal, cell)]
            record = _launch(launch, now, failed=not cells, simulated=simulated)
            writer.write_launch(record)
            for cell in cells:
                concurrency = cell.load.concurrency
                rate = 1.0 if launch.arm == BASELINE else gain(concurrency)
                samples = _samples(cell, now, rate, failed_share, error)
                if categories:
                    samples = [_of_category(sample, categories) for sample in samples]
                telemetry = _telemetry(now, max(s.ended_ns for s in samples), gpu=gpu)
                now = max(s.ended_ns for s in samples) + 10**9
                measurement, findings = summarize(
                    cell,
                    samples,
                    telemetry,
                    client=None,
                    effective=record.effective,
                    launch_id=record.launch_id,
                    gpus=gpus,
                    simulated=simulated,
                    limit_tok_per_s=limit_tok_per_s(
                        cell, launch.server, record.effective, samples
                    ),
                )
                writer.write_cell(
                    cell, record.launch_id, samples, telemetry, measurement, findings
                )
            now += 10**10
        if not published:
            return load_run(writer.folder)
        return load_run(publish(plan, writer))


def _arm(at):
    setting = f"num_steps: {1 + at % 8}, eagle_topk: 1, num_draft_tokens: {2 + at % 8}"
    page_size = f"arguments: [--page-size {2 ** (at // 8)}]"
    return f"  c{at + 1:02d}: {{speculative: {{algorithm: EAGLE3, {setting}}}, {page_size}}}"


def _launch(launch, now, *, failed, simulated) -> LaunchRecord:
    speculative = launch.arm != BASELINE
    settings = {
        "algorithm": "EAGLE3" if speculative else None,
        "num_steps": 3 if speculative else None,
        "eagle_topk": 1 if speculative else None,
        "num_draft_tokens": 4 if speculative else None,
    }
    effective = EffectiveConfig(
        speculative=tuple(settings.items()),
        other=(("max_running_requests", "48" if speculative else "64"),),
        version="0.5.23",
        simulated=simulated,
        max_total_num_tokens=1000,
    )
    return LaunchRecord(
        launch_id=f"L{launch.ordinal:02d}-{launch.arm}-p{launch.pair}",
        ordinal=launch.ordinal,
        arm=launch.arm,
        pair=launch.pair,
        server_key=launch.server_key,
        argv=("python3", "-m", "sglang.launch_server", "--tp-size", "2"),
        started_ns=now,
        ready_ns=None if failed else now + 10**9,
        effective=None if failed else effective,
        log_file="server.log",
        failure="CUDA out of memory <b>&</b>" if failed else None,
    )


def _samples(cell, start, rate, failed_share, error) -> list[RequestSample]:
    drawn = random.Random(cell.cell_id)
    free = [start] * cell.load.concurrency
    samples = []
    for index in range(cell.warmup_requests + cell.requests):
        slot = min(range(len(free)), key=free.__getitem__)
        sample = _sample(cell, index, slot, free[slot], rate)
        if index >= cell.warmup_requests and drawn.random() < failed_share:
            sample = replace(
                sample,
                status=RequestStatus.INCOMPLETE_STREAM,
                error_message=error,
                output_tok=None,
                token_source=None,
            )
        free[slot] = sample.ended_ns + 10**6
        samples.append(sample)
    return samples


def _sample(cell, index, slot, start, rate) -> RequestSample:
    speculative = cell.arm != BASELINE
    accepted = [0, 1, 2, 3] if speculative else [0]
    step_ns = round(10**7 * (2.5 if speculative else 1.0) / rate)
    tokens, times, now = [1], [start + 5 * 10**7], start + 5 * 10**7
    histogram = [0] * 4
    while tokens[-1] < 64:
        drafts = accepted[len(tokens) % len(accepted)]
        histogram[drafts] += 1
        now += step_ns
        tokens.append(min(64, tokens[-1] + 1 + drafts))
        times.append(now)
    steps = len(tokens) - 1
    correct = sum(k * count for k, count in enumerate(histogram))
    return RequestSample(
        cell_id=cell.cell_id,
        index=index,
        phase="warmup" if index < cell.warmup_requests else "measure",
        slot=slot,
        prompt_id=f"p{index}",
        prompt_sha256=f"{index:064x}",
        seed=index,
        due_ns=start,
        sent_ns=start,
        first_byte_ns=times[0],
        ended_ns=times[-1] + 1000,
        status=RequestStatus.OK,
        http_status=200,
        finish_reason="length",
        prompt_tok=64,
        output_tok=64,
        token_source=TokenSource.SERVER,
        event_ns=tuple(times),
        event_tok=tuple(tokens),
        first_visible_ns=times[0],
        tokens_before_first_event=False,
        text_sha256="cd" * 32,
        text_chars=256,
        bigram_ct=60,
        distinct_bigram_ct=60,
        spec_verify_ct=steps if speculative else None,
        spec_num_correct_drafts=correct if speculative else None,
        spec_num_proposed_drafts=3 * steps if speculative else None,
        spec_correct_drafts_histogram=tuple(histogram) if speculative else None,
    )


def _of_category(sample, categories):
    """The sample as one of a generated prompt; the first category is accepted best."""
    category = categories[sample.index % len(categories)]
    prompt_id = f"generated-{sample.index}-{category}"
    if category != categories[0] or sample.spec_verify_ct is None:
        return replace(sample, prompt_id=prompt_id)
    correct = 3 * sample.spec_verify_ct
    return replace(
        sample,
        prompt_id=prompt_id,
        spec_num_correct_drafts=correct,
        spec_correct_drafts_histogram=(0, 0, 0, sample.spec_verify_ct),
    )


def _telemetry(start, end, *, gpu) -> list[TelemetryPoint]:
    points = []
    for t_ns in range(start - 10**8, end + 10**8, 10**8):
        running = {"sglang:num_running_reqs": 1.0, "sglang:gen_throughput": 100.0}
        points += [
            TelemetryPoint(t_ns=t_ns, source="server", name=name, value=value)
            for name, value in running.items()
        ]
        if gpu:
            points += [
                TelemetryPoint(t_ns=t_ns, source="gpu", name=name, rank=rank, value=value)
                for rank in (0, 1)
                for name, value in (("power_w", 400.0 + rank), ("temperature_c", 60.0))
            ]
    return points
