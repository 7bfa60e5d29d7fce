"""One check for each kind of case: from its inputs, through the product, to named findings."""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

from bench.load.frames import Outcome
from bench.load.samples import to_sample
from bench.load.stream import StreamEnd, StreamRecord, assemble
from bench.load.work import PlannedRequest
from bench.metrics import acceptance, latency, throughput
from bench.metrics.window import counts_tokens
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
from bench.sglang.log_text import read_text
from bench.sglang.scrape import counter_delta, parse_scrape

Found = dict[str, Any]

ERROR_KINDS = {
    RequestStatus.REFUSED: ("refused", "connection_refused", "connect_error"),
    RequestStatus.HTTP_ERROR: ("http_error", "http_status"),
    RequestStatus.SERVER_ERROR_IN_STREAM: (
        "server_error_in_stream",
        "error_in_stream",
        "server_error",
        "in_band_error",
    ),
    RequestStatus.INCOMPLETE_STREAM: (
        "incomplete_stream",
        "stream_incomplete",
        "truncated_stream",
        "missing_done",
        "missing_finish_reason",
        "premature_end",
    ),
    RequestStatus.MALFORMED_STREAM: ("malformed_stream", "invalid_json", "parse_error"),
    # SGLang's chat sends an abort that has a status code as an error event, /generate as an abort.
    RequestStatus.ABORTED: ("aborted", "abort", "aborted_by_server", "server_error_in_stream"),
    RequestStatus.EMPTY_OUTPUT: ("empty_output", "empty_response", "no_output"),
    RequestStatus.TIMEOUT: ("timeout", "timed_out"),
    RequestStatus.DISCONNECTED: ("disconnected", "connection_lost", "connection_reset"),
    RequestStatus.CANCELLED: ("cancelled", "canceled"),
}
"""Our kinds of failure and the names that cases may have for them."""

TRANSPORT_ENDS = {
    "eof": None,
    "reset": RequestStatus.DISCONNECTED,
    "disconnect": RequestStatus.DISCONNECTED,
    "timeout": RequestStatus.TIMEOUT,
}


def read_json(path: Path) -> Any:
    return json.loads(path.read_text())


def read_rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines() if line.strip()]


def to_ns(milliseconds: float) -> int:
    return round(milliseconds * 1e6)


# ------------------------------------------------------------------------------------------ stream


def read_stream(folder: Path) -> tuple[list[tuple[int, bytes]], StreamEnd]:
    """(reads, end): of input.jsonl, or all bytes of stream.sse or stream.bin at once."""
    path = folder / "input.jsonl"
    if not path.exists():
        return [(0, whole_bytes(folder) or b"")], StreamEnd()
    reads, end = [], StreamEnd()
    for row in read_rows(path):
        kinds = set(row) - {"t_ms"}
        assert len(kinds) == 1, f"a row with one of chunk, hex, eof is wanted, found {sorted(row)}"
        kind = kinds.pop()
        if kind in TRANSPORT_ENDS:
            end = StreamEnd(status=TRANSPORT_ENDS[kind], message=kind)
            continue
        piece = bytes.fromhex(row["hex"]) if kind == "hex" else row["chunk"].encode()
        reads.append((to_ns(row["t_ms"]), piece))
    return reads, end


def whole_bytes(folder: Path) -> bytes | None:
    """The bytes of stream.sse or stream.bin; None without either."""
    paths = [folder / name for name in ("stream.sse", "stream.bin")]
    return next((path.read_bytes() for path in paths if path.exists()), None)


def check_stream(folder: Path) -> Found:
    reads, end = read_stream(folder)
    record = assemble(reads, end, keep_text=True)
    request = folder / "request.json"
    sent_ms = read_json(request).get("sent_ms", 0.0) if request.exists() else 0.0
    found = stream_fields(record, sent_ns=to_ns(sent_ms), tokenizer=stand_in_tokenizer(folder))
    data = b"".join(piece for _, piece in reads)
    return found | {"longest_line_bytes": max(map(len, data.splitlines()), default=0)}


def stand_in_tokenizer(folder: Path) -> dict[str, list[int]]:
    """A case's tokenizer.json is a table of text to ids."""
    path = folder / "tokenizer.json"
    return read_json(path) if path.exists() else {}


def sample_of(
    record: StreamRecord, *, sent_ns: int, tokenizer: dict[str, list[int]]
) -> RequestSample:
    text = (record.reasoning_text or "") + (record.text or "")
    uncounted = record.output_tok is None and record.status is RequestStatus.OK
    count = len(tokenizer[text]) if uncounted and text in tokenizer else None
    outcome = Outcome(
        index=0,
        slot=0,
        due_ns=sent_ns,
        sent_ns=sent_ns,
        first_byte_ns=None,
        ended_ns=record.event_ns[-1] if record.event_ns else sent_ns,
        http_status=200,
        stream=record,
    )
    return to_sample(ANY_CELL, ANY_REQUEST, outcome, retokenized_tok=count)


def stream_fields(record: StreamRecord, *, sent_ns: int, tokenizer: dict[str, list[int]]) -> Found:
    sample = sample_of(record, sent_ns=sent_ns, tokenizer=tokenizer)
    gaps_ms = latency.chunk_gaps_ms(sample)
    events, output_tok = len(sample.event_ns), sample.output_tok
    failed = sample.status is not RequestStatus.OK
    return {
        "status": "failed" if failed else "ok",
        "error_kind": frozenset(ERROR_KINDS[sample.status]) if failed else None,
        "error_message": sample.error_message,
        "text": record.text,
        "partial_text": record.text,
        "text_len": len(record.text or ""),
        "reasoning_text": record.reasoning_text,
        "finish_reason": sample.finish_reason,
        "prompt_tokens": sample.prompt_tok,
        "cached_tokens": sample.cached_tok,
        "reasoning_tokens": sample.reasoning_tok,
        "output_tokens": output_tok,
        "output_tokens_without_tokenizer": record.output_tok,
        "token_count_source": sample.token_source.value if sample.token_source else None,
        "counts_toward_throughput": counts_tokens(sample),
        "ttft_ms": latency.ttft_ms(sample),
        "ttfc_ms": latency.ttfo_ms(sample),
        "ttfo_ms": latency.ttfo_ms(sample),
        "last_token_ms": (sample.event_ns[-1] - sent_ns) / 1e6 if events else None,
        "tpot_ms": latency.tpot_ms(sample),
        "content_chunks": events,
        "chunk_gap_ms": gaps_ms,
        "mean_inter_chunk_ms": statistics.mean(gaps_ms) if gaps_ms else None,
        "tokens_per_chunk": output_tok / events if output_tok is not None and events else None,
        "decode_speed_reliable": sample.tokens_before_first_event is not True,
        **spec_fields(sample),
    }


def spec_fields(sample: RequestSample) -> Found:
    verify_ct, correct = sample.spec_verify_ct, sample.spec_num_correct_drafts
    histogram = sample.spec_correct_drafts_histogram
    return {
        "spec_verify_ct": verify_ct,
        "spec_num_correct_drafts": correct,
        "spec_num_proposed_drafts": sample.spec_num_proposed_drafts,
        "spec_correct_drafts_histogram": histogram,
        "accept_length": acceptance.accept_len_tok(correct, verify_ct),
        "accept_length_completion_over_verify": acceptance.accept_len_server_tok(
            sample.output_tok, verify_ct
        ),
        "accept_at_position": acceptance.accept_at_position(histogram),
    }


ANY_WORKLOAD = Workload(
    name="case",
    api=Api.CHAT,
    dataset="generated",
    max_output_tok=1,
    sampling=Sampling(temperature=0.0),
)
ANY_CELL = Cell(
    cell_id="case",
    comparison_key="case",
    arm="baseline",
    workload=ANY_WORKLOAD,
    load=Load(kind="closed", concurrency=1),
    pair=0,
    requests=1,
    warmup_requests=0,
    steady_s=1.0,
    seed=0,
)
ANY_REQUEST = PlannedRequest(
    index=0,
    phase="measure",
    is_priming=False,
    prompt_id="case",
    prompt_sha256="",
    seed=0,
    body=b"",
    offset_ns=None,
)


# -------------------------------------------------------------------------------- other kinds


def check_event_gaps(folder: Path) -> Found:
    given = read_json(folder / "input.json")
    token_ms = given["token_ms"]
    sample = RequestSample(
        cell_id="case",
        index=0,
        phase="measure",
        slot=0,
        prompt_id="case",
        prompt_sha256="",
        seed=0,
        due_ns=to_ns(given["send_ms"]),
        sent_ns=to_ns(given["send_ms"]),
        ended_ns=to_ns(token_ms[-1]) if token_ms else 0,
        status=RequestStatus.OK,
        output_tok=len(token_ms),
        token_source=TokenSource.SERVER,
        event_ns=tuple(map(to_ns, token_ms)),
        event_tok=tuple(range(1, len(token_ms) + 1)),
    )
    gaps_ms = latency.chunk_gaps_ms(sample)
    spread = latency.distribution(gaps_ms)
    return {
        "ttft_ms": latency.ttft_ms(sample),
        "tpot_ms": latency.tpot_ms(sample),
        "e2e_ms": latency.e2e_ms(sample),
        "itl_ms": gaps_ms,
        "mean_itl_ms": spread.mean if spread else None,
        "p50_itl_ms": spread.p50 if spread else None,
        "p99_itl_ms": spread.p99 if spread else None,
    }


def check_request_rows(folder: Path) -> Found:
    rows = read_rows(folder / "input.jsonl")
    got = throughput.rows_summary(
        [
            throughput.RequestRow(
                ok=row["ok"],
                start_s=row["start_s"],
                end_s=row["end_s"],
                ttft_s=row.get("ttft_s"),
                output_tok=row.get("output_tokens"),
            )
            for row in rows
        ]
    )
    return {
        "completed": got.completed,
        "failed": got.failed,
        "duration_s": got.duration_s,
        "total_output_tokens": got.output_tok_sum,
        "output_throughput_tok_s": got.output_tok_per_s,
        "mean_concurrency": got.mean_concurrency,
        "tpot_s": got.tpot_s,
    }


def check_decode_rate(folder: Path) -> Found:
    given = read_json(folder / "input.json")
    rates = latency.decode_rates(
        given["prompt_tokens"], given["output_tokens"], given["ttft_s"], given["e2e_s"]
    )
    return {
        "prefill_tok_s": rates.prefill_tok_per_s,
        "decode_tok_s": rates.decode_tok_per_s,
        "e2e_tok_s": rates.e2e_tok_per_s,
    }


def check_accept_over_dp(folder: Path) -> Found:
    rows = [r for r in read_rows(folder / "requests.jsonl") if r.get("spec_verify_ct")]
    if all("spec_num_correct_drafts" in row for row in rows):
        correct = sum(row["spec_num_correct_drafts"] for row in rows)
        verify_ct = sum(row["spec_verify_ct"] for row in rows)
        accept_length = acceptance.accept_len_tok(correct, verify_ct)
    else:
        told = [row for row in rows if row["spec_accept_length"] is not None]
        accept_length = acceptance.pooled_accept_len(
            [row["spec_accept_length"] for row in told], [row["spec_verify_ct"] for row in told]
        )
    info = read_json(folder / "server_info.json")
    states = [state.get("avg_spec_accept_length") for state in info["internal_states"]]
    return {
        "accept_length": accept_length,
        "server_info_usable": acceptance.states_usable(states),
        "first_state_value": states[0] if states else None,
    }


def check_counter_delta(folder: Path) -> Found:
    before, after = (
        parse_scrape(read_text(folder / name)) for name in ("before.prom", "after.prom")
    )

    def rise(name: str) -> float | None:
        return counter_delta(before, after, name)

    drafts = rise("vllm:spec_decode_num_drafts_total")
    proposed = rise("vllm:spec_decode_num_draft_tokens_total")
    accepted = rise("vllm:spec_decode_num_accepted_tokens_total")
    verifies = rise("sglang:spec_verify_calls_total")
    generated = rise("sglang:generation_tokens_total")
    if verifies is not None:  # SGLang counts tokens, prefill's among them, and not drafts
        accept_length = None if generated is None else generated / verifies if verifies else None
    else:
        accept_length = None if accepted is None or not drafts else 1 + accepted / drafts
    return {
        "drafts": drafts,
        "draft_tokens": proposed,
        "accepted": accepted,
        "verify_calls": verifies,
        "generated_tokens": generated,
        "accept_length": accept_length,
        "accept_rate": None if accepted is None or not proposed else accepted / proposed,
    }


CHECKS = {
    "stream": check_stream,
    "event_gaps": check_event_gaps,
    "request_rows": check_request_rows,
    "decode_rate": check_decode_rate,
    "accept_over_dp": check_accept_over_dp,
    "counter_delta": check_counter_delta,
}
