"""A result of SGLang's bench_serving or of `vllm bench serve`, as one record.

Fields: SGLang 0.5.23 `benchmark/serving.py`, vLLM `benchmarks/serve.py`. Both call the same things
by mostly the same names; where a definition is weak, the field's text says so.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from bench.foreign.json_text import count_in, number_in, read_rows

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency:
    """One latency over requests (or, for gaps, over events), in ms.

    Attributes:
        mean_ms: None where the tool had none, as for the others.
        median_ms: Half are below it.
        std_ms: Standard deviation.
        percentiles_ms: (percentile, value), ascending; those that were asked for.
    """

    mean_ms: float | None
    median_ms: float | None
    std_ms: float | None
    percentiles_ms: tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SpecCounts:
    """Speculation over the run, by vLLM's counters.

    Attributes:
        drafts: Verify steps that had a draft.
        draft_tok: Draft tokens proposed.
        accepted_tok: Those accepted.
        accept_rate: Accepted / proposed, as told.
        accept_at_position: P(at least k drafts accepted), k = 1, 2, …
    """

    drafts: int | None
    draft_tok: int | None
    accepted_tok: int | None
    accept_rate: float | None
    accept_at_position: tuple[float | None, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignResult:
    """One run of another load generator. Every number is as told there; None where it is missing.

    Attributes:
        tool: Whose fields these are.
        backend: The API it used, by its own name.
        model: As it was called.
        dataset: Likewise.
        request_rate_per_s: Asked rate; None for as fast as possible.
        max_concurrency: Asked limit; None without one.
        completed_ct: Requests counted as successful. bench_serving counts streams that failed
            after HTTP 200 among them.
        failed_ct: Failed ones; vLLM only.
        duration_s: First send to last answer, ramp and tail in it.
        input_tok: Prompt tokens.
        output_tok: Generated tokens as reported, or as requested where the server reported none.
        output_tok_retokenized: The same by the client's tokenizer over the text; SGLang only.
        request_per_s: Completed / duration.
        input_tok_per_s: Prompt tokens / duration.
        output_tok_per_s: Generated tokens / duration.
        peak_output_tok_per_s: Best second. On streaming APIs it counts events, not tokens: under
            speculation it may be below the mean.
        total_tok_per_s: Both kinds of tokens / duration.
        concurrency_mean: Requests in flight on average: Σ end-to-end latency / duration.
        max_concurrent_ct: Most in flight in one second.
        e2e_ms: Send to last byte.
        ttft_ms: Send to the first event with text.
        tpot_ms: (latency - ttft) / (tokens - 1), per request.
        itl_ms: Gaps between events or, by a version's own rule, between tokens: not comparable
            between runs with and without speculation.
        accept_len_tok: Tokens a verify step yields, bonus token in it.
        accept_scope: Over what: `run` (counters before and after it), or `since_flush` (the
            server's mean since its start or last flush, of its first data-parallel rank alone).
        spec: Counts; vLLM only.
        row: All fields as they were, cleaned of NaN and Infinity.
        decimals: Printed decimals of each field of `row`, for a printed table.
    """

    tool: Literal["sglang", "vllm"]
    backend: str | None
    model: str | None
    dataset: str | None
    request_rate_per_s: float | None
    max_concurrency: int | None
    completed_ct: int | None
    failed_ct: int | None
    duration_s: float | None
    input_tok: int | None
    output_tok: int | None
    output_tok_retokenized: int | None
    request_per_s: float | None
    input_tok_per_s: float | None
    output_tok_per_s: float | None
    peak_output_tok_per_s: float | None
    total_tok_per_s: float | None
    concurrency_mean: float | None
    max_concurrent_ct: int | None
    e2e_ms: Latency | None
    ttft_ms: Latency | None
    tpot_ms: Latency | None
    itl_ms: Latency | None
    accept_len_tok: float | None
    accept_scope: Literal["run", "since_flush"] | None
    spec: SpecCounts | None
    row: Mapping[str, Any]
    decimals: Mapping[str, int]


def read_results(path: Path) -> list[ForeignResult]:
    """The results in a file of SGLang's (JSONL, appended to) or vLLM's (one JSON object).

    Lines that are no JSON object are left out; `read_rows` says which they are.

    Raises:
        InputError: It cannot be read, or has no result.
    """
    return [to_result(row) for row in read_rows(path).rows]


def to_result(row: Mapping[str, Any], decimals: Mapping[str, int] | None = None) -> ForeignResult:
    """The record of one row.

    Args:
        row: By the tools' own field names, cleaned of NaN and Infinity.
        decimals: Of a printed table.
    """
    spec = _spec(row)
    accept_len = number_in(row, "accept_length", "spec_decode_acceptance_length")
    by_run = "spec_decode_acceptance_length" in row
    return ForeignResult(
        tool="vllm" if _is_vllm(row) else "sglang",
        backend=_text(row, "backend", "endpoint_type"),
        model=_text(row, "model", "model_id", "model_name"),
        dataset=_text(row, "dataset_name", "dataset"),
        request_rate_per_s=number_in(row, "request_rate"),
        max_concurrency=count_in(row, "max_concurrency"),
        completed_ct=count_in(row, "completed"),
        failed_ct=count_in(row, "failed"),
        duration_s=number_in(row, "duration"),
        input_tok=count_in(row, "total_input_tokens", "total_input"),
        output_tok=count_in(row, "total_output_tokens", "total_output"),
        output_tok_retokenized=count_in(row, "total_output_tokens_retokenized"),
        request_per_s=number_in(row, "request_throughput"),
        input_tok_per_s=number_in(row, "input_throughput"),
        output_tok_per_s=number_in(row, "output_throughput"),
        peak_output_tok_per_s=number_in(row, "max_output_tokens_per_s"),
        total_tok_per_s=number_in(row, "total_throughput", "total_token_throughput"),
        concurrency_mean=number_in(row, "concurrency"),
        max_concurrent_ct=count_in(row, "max_concurrent_requests"),
        e2e_ms=_latency(row, "e2e_latency", "e2el"),
        ttft_ms=_latency(row, "ttft"),
        tpot_ms=_latency(row, "tpot"),
        itl_ms=_latency(row, "itl"),
        accept_len_tok=accept_len,
        accept_scope=None if accept_len is None else "run" if by_run else "since_flush",
        spec=spec,
        row=row,
        decimals=decimals or {},
    )


def _is_vllm(row: Mapping[str, Any]) -> bool:
    """Whose row it is: vLLM counts failures and says so; bench_serving does not."""
    return any(
        name in row for name in ("failed", "total_token_throughput", "tokenizer_id")
    ) or any(name.startswith("spec_decode_") for name in row)


def _text(row: Mapping[str, Any], *names: str) -> str | None:
    return next((row[name] for name in names if isinstance(row.get(name), str)), None)


_PERCENTILE = re.compile(r"p(?P<percentile>\d+(?:\.\d+)?)_(?P<name>.+)_ms")


def _latency(row: Mapping[str, Any], *names: str) -> Latency | None:
    """What is told of a latency under any of its names; None when nothing is."""
    mean, median, std = (
        number_in(row, *(f"{part}_{name}_ms" for name in names))
        for part in ("mean", "median", "std")
    )
    percentiles = {
        float(match["percentile"]): value
        for field in row
        if (match := _PERCENTILE.fullmatch(field)) and match["name"] in names
        if (value := number_in(row, field)) is not None
    }
    if mean is median is std is None and not percentiles:
        return None
    return Latency(
        mean_ms=mean,
        median_ms=median,
        std_ms=std,
        percentiles_ms=tuple(sorted(percentiles.items())),
    )


def _spec(row: Mapping[str, Any]) -> SpecCounts | None:
    if not any(name.startswith("spec_decode_") for name in row):
        return None
    rate_pct = number_in(row, "spec_decode_acceptance_rate")
    at_position = row.get("spec_decode_per_position_acceptance_rates")
    return SpecCounts(
        drafts=count_in(row, "spec_decode_num_drafts"),
        draft_tok=count_in(row, "spec_decode_draft_tokens", "spec_decode_num_draft_tokens"),
        accepted_tok=count_in(
            row, "spec_decode_accepted_tokens", "spec_decode_num_accepted_tokens"
        ),
        accept_rate=None if rate_pct is None else rate_pct / 100,
        accept_at_position=tuple(at_position) if isinstance(at_position, list) else (),
    )
