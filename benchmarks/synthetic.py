"""Cells whose truth is known: a closed loop of slots on a made-up server, as request samples.

The server batches continuously, as SGLang does: when requests wait, one prefill goes before the
next decode step and everybody waits for it; a decode step makes tokens for all. So slots that
started together stay together for a few requests, and speed moves in waves although the server
never changes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from bench.model import (
    Api,
    Cell,
    Load,
    RequestSample,
    RequestStatus,
    Sampling,
    TokenSource,
    Workload,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

ORIGIN_NS = 3_600_000_000_000  # clocks do not start at 0


@dataclass(frozen=True, slots=True, kw_only=True)
class MadeUpServer:
    """How a made-up server spends its time.

    Attributes:
        step_ms: A decode step with one request in the batch.
        step_ms_per_request: What each further request of the batch adds.
        prefill_ms: A prefill of one prompt; others of the same batch add a half each.
        step_sd: Standard deviation of a step's logarithm.
        reach: P(at least k drafts accepted); empty: no speculation.
        prompt_sd: How much the logarithm of acceptance differs between prompts.
        slowdown: Factor on every duration, by seconds since the first send.
    """

    step_ms: float = 10.0
    step_ms_per_request: float = 0.5
    prefill_ms: float = 30.0
    step_sd: float = 0.01
    reach: tuple[float, ...] = ()
    prompt_sd: float = 0.1
    slowdown: Callable[[float], float] = lambda _: 1.0


def made_up_cell(
    *, concurrency: int, requests: int, speculative: bool = False, warmup_per_slot: int = 1
) -> Cell:
    """A cell that asks for what `closed_loop` makes."""
    return Cell(
        cell_id=f"made-up-{concurrency}-{requests}",
        comparison_key="made-up",
        arm="eagle3" if speculative else "baseline",
        workload=Workload(
            name="made-up",
            api=Api.CHAT,
            dataset="generated",
            max_output_tok=4096,
            sampling=Sampling(temperature=0.0),
        ),
        load=Load(kind="closed", concurrency=concurrency),
        pair=0,
        requests=requests,
        warmup_requests=warmup_per_slot * concurrency,
        steady_s=0.1,
        seed=1,
        arm_is_speculative=speculative,
    )


@dataclass(slots=True, kw_only=True)
class _Request:
    index: int
    slot: int
    sent_s: float
    length_tok: int
    lucky: float
    event_s: list[float]
    event_tok: list[int]
    histogram: list[int]


def closed_loop(
    cell: Cell,
    server: MadeUpServer,
    rng: np.random.Generator,
    *,
    length_tok: Callable[[np.random.Generator], int] = lambda _: 128,
) -> list[RequestSample]:
    """Every request of a cell on a made-up server, warm-up included, by index.

    Args:
        cell: Its load must be closed.
        server: What it runs on.
        rng: Draws steps, acceptance and lengths.
        length_tok: Draws the length of an answer.
    """
    slots = cell.load.concurrency or 1
    total = cell.requests + cell.warmup_requests
    fresh = iter(range(total))
    now_s = 0.0

    def send(slot: int) -> _Request | None:
        index = next(fresh, None)
        if index is None:
            return None
        return _Request(
            index=index,
            slot=slot,
            sent_s=now_s,
            length_tok=max(2, length_tok(rng)),
            lucky=math.exp(server.prompt_sd * rng.standard_normal()),
            event_s=[],
            event_tok=[],
            histogram=[0] * (len(server.reach) + 1),
        )

    waiting = [request for slot in range(slots) if (request := send(slot)) is not None]
    running: list[_Request] = []
    samples: list[RequestSample] = []
    while waiting or running:
        noise = math.exp(server.step_sd * rng.standard_normal()) * server.slowdown(now_s)
        if waiting:
            now_s += server.prefill_ms / 1e3 * (1 + (len(waiting) - 1) / 2) * noise
            tokens = dict.fromkeys((r.index for r in waiting), 1)
            running, waiting = running + waiting, []
        else:
            batch = len(running)
            now_s += (server.step_ms + server.step_ms_per_request * (batch - 1)) / 1e3 * noise
            tokens = _step_tokens(running, server, rng)
        going: list[_Request] = []
        for request in running:
            if request.index in tokens:
                made = (request.event_tok[-1] if request.event_tok else 0) + tokens[request.index]
                request.event_s.append(now_s)
                request.event_tok.append(min(made, request.length_tok))
            if request.event_tok[-1] < request.length_tok:
                going.append(request)
                continue
            samples.append(_sample(cell, request, speculative=bool(server.reach)))
            following = send(request.slot)
            if following is not None:
                waiting.append(following)
        running = going
    return sorted(samples, key=lambda s: s.index)


def _step_tokens(
    running: Sequence[_Request], server: MadeUpServer, rng: np.random.Generator
) -> dict[int, int]:
    if not server.reach:
        return {request.index: 1 for request in running}
    tokens: dict[int, int] = {}
    for request, u in zip(running, rng.random(len(running)), strict=True):
        correct = sum(1 for chance in server.reach if u < chance * request.lucky)
        request.histogram[correct] += 1
        tokens[request.index] = 1 + correct
    return tokens


def _ns(seconds: float) -> int:
    return ORIGIN_NS + round(seconds * 1e9)


def _sample(cell: Cell, request: _Request, *, speculative: bool) -> RequestSample:
    sent_ns = _ns(request.sent_s)
    events = tuple(_ns(t) for t in request.event_s)
    steps = len(events) - 1
    correct = sum(k * n for k, n in enumerate(request.histogram))
    return RequestSample(
        cell_id=cell.cell_id,
        index=request.index,
        phase="warmup" if request.index < cell.warmup_requests else "measure",
        slot=request.slot,
        prompt_id=f"p{request.index}",
        prompt_sha256=f"{request.index:064x}",
        seed=request.index,
        due_ns=sent_ns,
        sent_ns=sent_ns,
        first_byte_ns=events[0],
        ended_ns=events[-1] + 1000,
        status=RequestStatus.OK,
        http_status=200,
        finish_reason="stop",
        prompt_tok=512,
        cached_tok=0,
        output_tok=request.length_tok,
        token_source=TokenSource.SERVER,
        event_ns=events,
        event_tok=tuple(request.event_tok),
        first_visible_ns=events[0],
        tokens_before_first_event=False,
        text_sha256=f"{request.index:064x}",
        bigram_ct=100,
        distinct_bigram_ct=90,
        spec_verify_ct=steps if speculative else None,
        spec_num_correct_drafts=correct if speculative else None,
        spec_num_proposed_drafts=(len(request.histogram) - 1) * steps if speculative else None,
        spec_correct_drafts_histogram=tuple(request.histogram) if speculative else None,
        num_retractions=0,
        queue_ns=0,
    )
