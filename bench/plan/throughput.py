"""What a user of one server is expected to get, from cards; sizes the work and estimates its time.

A guess that costs nothing when it is wrong: too few requests make a window that is marked too
short, too many make it longer.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from bench.physics import (
    Speculation,
    accept_len_tok,
    decode_step,
    load_acceptance,
    load_hardware,
    load_target,
    prefill_time,
    tree_reach,
)
from bench.sglang.arguments import (
    EffectiveSpeculative,
    Known,
    ModelFacts,
    asked_text,
    effective_speculative,
    parse_arguments,
)

if TYPE_CHECKING:
    from bench.model import Load, ServerConfig, Workload
    from bench.physics import HardwareCard, TargetCard

UNSTATED_INPUT_TOK = 512  # a chat prompt of usual length
PREFILL_BATCH_TOK = 8192  # SGLang's usual chunked_prefill_size on GPUs of this size
_MAX_BATCH = 256
_CHAIN = Speculation(num_steps=3, topk=1, num_draft_tokens=4)  # what SGLang takes when not told


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """What one user is expected to see.

    Attributes:
        output_tok_per_s_per_user: Prefills, its own and the others', included.
        accept_len_tok: Tokens of one step; 1 without speculation.
        batch: Requests in flight.
    """

    output_tok_per_s_per_user: float
    accept_len_tok: float
    batch: float

    @property
    def event_per_s(self) -> float:
        """Stream events of all users a second of the clock: one a request and step."""
        return self.batch * self.output_tok_per_s_per_user / self.accept_len_tok


def expected_output_tok_per_s_per_user(
    server: ServerConfig, load: Load, workload: Workload
) -> float | None:
    """Output tokens a second that one user is expected to get; None without cards to tell it from.

    Args:
        server: Names the cards; `acceptance` must be given when the arguments ask for speculation.
        load: How many users there are.
        workload: How long prompts and answers are.
    """
    expectation = expected(server, load, workload)
    return None if expectation is None else expectation.output_tok_per_s_per_user


def expected(
    server: ServerConfig,
    load: Load,
    workload: Workload,
    *,
    measured_accept_len_tok: float | None = None,
) -> Expected | None:
    """As `expected_output_tok_per_s_per_user`, with what the figure is made of.

    Args:
        server: As there.
        load: As there.
        workload: As there.
        measured_accept_len_tok: Tokens of one step where they were measured, in place of what the
            acceptance card says.
    """
    if server.hardware is None or server.target_card is None:
        return None
    hardware, target = _cards(server.hardware, server.target_card)
    asked = parse_arguments(server.arguments)
    known = Known(target=ModelFacts(architecture=target.architecture))
    effective = effective_speculative(asked, known)
    speculation, accept_len = None, 1.0
    if isinstance(effective, EffectiveSpeculative) and effective.algorithm is not None:
        speculation = _speculation(effective)
        told = measured_accept_len_tok
        if told is None:
            told = _accept_len_tok(server, speculation)
        if told is None:
            return None
        accept_len = told
    tp = int(asked_text(asked, "tp_size") or 1)
    batch = float(load.concurrency or 1)
    request_s = _request_s(hardware, target, workload, batch, speculation, accept_len, tp)
    if load.kind != "closed":  # Little's law, found by going round
        rate = load.rate_per_s or load.max_rate_per_s or 1.0
        for _ in range(16):
            batch = min(max(rate * request_s, 1.0), _MAX_BATCH)
            request_s = _request_s(hardware, target, workload, batch, speculation, accept_len, tp)
    return Expected(
        output_tok_per_s_per_user=workload.max_output_tok / request_s,
        accept_len_tok=accept_len,
        batch=batch,
    )


def _accept_len_tok(server: ServerConfig, speculation: Speculation) -> float | None:
    """What the acceptance card says; None without one."""
    if server.acceptance is None:
        return None
    reach = tree_reach(
        load_acceptance(server.acceptance).reach,
        num_steps=speculation.num_steps,
        topk=speculation.topk,
        num_draft_tokens=speculation.num_draft_tokens,
    )
    return accept_len_tok(reach, len(reach)) if reach else 1.0


@cache
def _cards(hardware: str, target: str) -> tuple[HardwareCard, TargetCard]:
    return load_hardware(hardware), load_target(target)


def _speculation(effective: EffectiveSpeculative) -> Speculation:
    drafts = effective.num_draft_tokens or _CHAIN.num_draft_tokens
    return Speculation(
        num_steps=effective.num_steps or max(drafts - 1, 1),
        topk=effective.eagle_topk or 1,
        num_draft_tokens=drafts,
    )


def _request_s(
    hardware: HardwareCard,
    target: TargetCard,
    workload: Workload,
    batch: float,
    speculation: Speculation | None,
    accept_len: float,
    tp: int,
) -> float:
    """Seconds of one request among `batch` equal ones: its steps, and everybody's prefill once."""
    input_tok = workload.input_tok or UNSTATED_INPUT_TOK
    cached_tok = {
        "cold": 0,
        "primed": input_tok - 1,
        "shared-prefix": int(input_tok * workload.shared_prefix_share),
    }[workload.cache]
    new_tok = input_tok - cached_tok
    at_once = min(batch, max(1, PREFILL_BATCH_TOK // new_tok))
    chunks = [(new_tok, cached_tok)] * max(1, round(at_once))
    prefills_ms = batch / at_once * prefill_time(hardware, target, chunks=chunks, tp=tp).total_ms
    step = decode_step(
        hardware,
        target,
        batch=max(1, round(batch)),
        context_tok_mean=input_tok + workload.max_output_tok / 2,
        speculation=speculation,
        tp=tp,
    )
    return (prefills_ms + workload.max_output_tok / accept_len * step.total_ms) / 1e3
