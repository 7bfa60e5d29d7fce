"""From a worker's outcomes to the stored records; pure."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, Final

from bench.http import redact
from bench.model import ClientStats, RequestSample, TokenSource

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.load.frames import JobEnd, Outcome
    from bench.load.work import PlannedRequest
    from bench.model import Cell, RequestStatus


MESSAGE_CHARS: Final = 500


def to_sample(
    cell: Cell,
    request: PlannedRequest,
    outcome: Outcome,
    *,
    retokenized_tok: int | None = None,
    secrets: Sequence[str] = (),
) -> RequestSample:
    """The record of one request that a worker told of.

    Args:
        cell: The cell it belongs to.
        request: What was sent.
        outcome: What became of it.
        retokenized_tok: The tokenizer's count, where the server gave none.
        secrets: Texts that must not be stored with an error message.
    """
    stream = outcome.stream
    source = TokenSource.SERVER if stream.output_tok is not None else None
    if source is None and retokenized_tok is not None:
        source = TokenSource.RETOKENIZED
    facts, spec = stream.facts, stream.spec
    message = stream.error_message
    if message is not None:
        message = redact(message, secrets)[:MESSAGE_CHARS]
    return RequestSample(
        cell_id=cell.cell_id,
        index=request.index,
        phase=request.phase,
        slot=outcome.slot if cell.load.kind == "closed" else None,
        prompt_id=request.prompt_id,
        prompt_sha256=request.prompt_sha256,
        seed=request.seed,
        due_ns=outcome.due_ns,
        sent_ns=outcome.sent_ns,
        first_byte_ns=outcome.first_byte_ns,
        ended_ns=outcome.ended_ns,
        status=stream.status,
        error_message=message,
        http_status=outcome.http_status,
        finish_reason=stream.finish_reason,
        prompt_tok=stream.prompt_tok,
        cached_tok=stream.cached_tok,
        output_tok=stream.output_tok if stream.output_tok is not None else retokenized_tok,
        reasoning_tok=stream.reasoning_tok,
        token_source=source,
        event_ns=stream.event_ns,
        event_tok=stream.event_tok,
        first_visible_ns=stream.first_visible_ns,
        tokens_before_first_event=stream.tokens_before_first_event,
        read_ct=stream.read_ct,
        text_sha256=facts.sha256 if facts else None,
        text_block_hashes=facts.block_hashes if facts else (),
        text=stream.text if cell.workload.store_text else None,
        text_chars=facts.chars if facts else 0,
        bigram_ct=facts.bigram_ct if facts else 0,
        distinct_bigram_ct=facts.distinct_bigram_ct if facts else 0,
        spec_verify_ct=spec.verify_ct if spec else None,
        spec_num_correct_drafts=spec.num_correct_drafts if spec else None,
        spec_num_proposed_drafts=spec.num_proposed_drafts if spec else None,
        spec_correct_drafts_histogram=spec.correct_drafts_histogram if spec else None,
        num_retractions=stream.num_retractions,
        queue_ns=stream.queue_ns,
        dp_rank=stream.dp_rank,
    )


def unsent_sample(
    cell: Cell, request: PlannedRequest, known_ns: int, status: RequestStatus, why: str
) -> RequestSample:
    """The record of a request that no worker told of: not sent, or gone down with its worker."""
    return RequestSample(
        cell_id=cell.cell_id,
        index=request.index,
        phase=request.phase,
        slot=None,
        prompt_id=request.prompt_id,
        prompt_sha256=request.prompt_sha256,
        seed=request.seed,
        due_ns=known_ns,
        sent_ns=None,
        ended_ns=known_ns,
        status=status,
        error_message=why,
    )


def client_stats(
    samples: Sequence[RequestSample],
    ends: Sequence[JobEnd],
    *,
    workers: int,
    second_reader_ct: int = 0,
    resent_ct: int = 0,
    proven_event_per_s: float | None = None,
) -> ClientStats:
    """How the workers did over one cell: lags of the worst of them, CPU shares of all together.

    Args:
        samples: Of the cell.
        ends: The account of each worker that lived to give one.
        workers: How many there were.
        second_reader_ct: Responses that aiohttp's own reader read.
        resent_ct: Requests that were sent twice.
        proven_event_per_s: What the self-test proved the client good for; None: not tested.
    """
    sent = [s for s in samples if s.sent_ns is not None]
    late_ms = sorted((s.sent_ns - s.due_ns) / 1e6 for s in sent if s.sent_ns is not None)
    lags_ms = [end.loop_lag_p99_ms for end in ends if end.loop_lag_p99_ms is not None]
    world_s = max((end.world_s for end in ends), default=0.0)
    event_ct = sum(len(sample.event_ns) for sample in samples)
    read_ct = sum(sample.read_ct for sample in samples if sample.event_ns)
    return ClientStats(
        send_late_p50_ms=statistics.median(late_ms) if late_ms else None,
        send_late_p99_ms=late_ms[(len(late_ms) * 99 - 1) // 100] if late_ms else None,
        loop_lag_p99_ms=max(lags_ms) if lags_ms else None,
        cpu_share=sum(end.cpu_s for end in ends) / world_s if world_s > 0 else None,
        events_per_s=event_ct / world_s if world_s > 0 else None,
        max_in_flight=sum(end.max_in_flight for end in ends),
        workers=workers,
        events_per_read=event_ct / read_ct if read_ct else None,
        in_flight_mean=_in_flight_mean(sent),
        second_reader_ct=second_reader_ct,
        resent_ct=resent_ct,
        proven_event_per_s=proven_event_per_s,
    )


def _in_flight_mean(sent: Sequence[RequestSample]) -> float | None:
    starts_ns = [sample.sent_ns for sample in sent if sample.sent_ns is not None]
    ends_ns = [sample.ended_ns for sample in sent]
    span_ns = max(ends_ns, default=0) - min(starts_ns, default=0)
    return (sum(ends_ns) - sum(starts_ns)) / span_ns if span_ns > 0 else None
