"""The table that bench_serving and `vllm bench serve` print, with whatever lines a version has."""

from __future__ import annotations

import math
import re
from typing import Any

from bench.foreign.results import ForeignResult, to_result
from bench.sglang.log_text import as_written

_TITLE = re.compile(r"=+ *Serving Benchmark Result *=+")
_MOST_DIGITS = 18  # before and behind the point
_LINE = re.compile(r"^\s*(?P<label>[A-Za-z][^:]*):\s+(?P<value>\S.*?)\s*$")
_NUMBER = re.compile(
    r"-?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.(?P<decimals>\d+))?(?P<exponent>[eE][+-]?\d{1,3})?(?=\s|$|%)"
)

_FIELDS = {
    "backend": "backend",
    "traffic request rate": "request_rate",
    "request rate configured (rps)": "request_rate",
    "max request concurrency": "max_concurrency",
    "max reqeuest concurrency": "max_concurrency",  # so spelt for half a year
    "maximum request concurrency": "max_concurrency",
    "successful requests": "completed",
    "failed requests": "failed",
    "benchmark duration (s)": "duration",
    "total input tokens": "total_input_tokens",
    "total input text tokens": "total_input_text_tokens",
    "total input vision tokens": "total_input_vision_tokens",
    "total generated tokens": "total_output_tokens",
    "total generated tokens (retokenized)": "total_output_tokens_retokenized",
    "request throughput (req/s)": "request_throughput",
    "request goodput (req/s)": "request_goodput",
    "input token throughput (tok/s)": "input_throughput",
    "output token throughput (tok/s)": "output_throughput",
    "peak output token throughput (tok/s)": "max_output_tokens_per_s",
    "peak concurrent requests": "max_concurrent_requests",
    "total token throughput (tok/s)": "total_throughput",
    "total throughput (tok/s)": "total_throughput",
    "concurrency": "concurrency",
    "accept length": "accept_length",
    "acceptance rate (%)": "spec_decode_acceptance_rate",
    "acceptance length": "spec_decode_acceptance_length",
    "drafts": "spec_decode_num_drafts",
    "draft tokens": "spec_decode_draft_tokens",
    "accepted tokens": "spec_decode_accepted_tokens",
}
_LATENCY = re.compile(
    r"(?P<part>mean|median|std|max|p\d+(?:\.\d+)?) (?P<name>e2e latency|e2el|ttft|tpot|itl) \(ms\)"
)
_TWO_DECIMALS = ("(s)", "(ms)", "/s)")
"""Both tools print these with two decimals, whatever the figure."""

_POSITION = re.compile(r"position (\d{1,6})")
_POSITIONS = "spec_decode_per_position_acceptance_rates"


def parse_tables(text: str) -> list[ForeignResult]:
    """Every table of a text, in order; a text without a title is one table, if it has a line."""
    parts = _TITLE.split(text)
    tables = [_table(part) for part in (parts[1:] or parts)]
    return [table for table in tables if table is not None]


def _table(text: str) -> ForeignResult | None:
    row: dict[str, Any] = {}
    decimals: dict[str, int] = {}
    positions: dict[int, float] = {}
    lines = [line for line in text.splitlines() if line.strip()]
    for number, line in enumerate(lines, start=1):
        match = _LINE.match(as_written(line))
        if match is None:
            continue
        label = " ".join(match["label"].lower().split())
        value, places = _value(match["value"])
        if number == len(lines) and label.endswith(_TWO_DECIMALS) and places != 2:
            continue  # cut: so many digits of a figure say nothing
        position = _POSITION.fullmatch(label)
        if position and isinstance(value, (int, float)):
            positions[int(position[1])] = value / 100
        field = _field(label)
        if field is not None and field not in row:
            row[field] = value
            decimals[field] = places
    if positions:
        row[_POSITIONS] = [positions.get(k) for k in range(max(positions) + 1)]
    return to_result(row, decimals) if row else None


def _field(label: str) -> str | None:
    latency = _LATENCY.fullmatch(label)
    if latency:
        return f"{latency['part']}_{latency['name'].replace(' ', '_')}_ms"
    return _FIELDS.get(label)


def _value(text: str) -> tuple[float | int | str | None, int]:
    """A value and its printed decimals; None for `not set`, `inf` and `nan`, else text."""
    match = _NUMBER.match(text)
    if match:
        digits = match[0].replace(",", "")
        if len(digits) > _MOST_DIGITS:
            return text, 0
        if match["exponent"]:
            number = float(digits)
            return (number if math.isfinite(number) else None), 0
        places = len(match["decimals"] or "")
        return (float(digits) if places else int(digits)), places
    return (None if text.lower() in {"not set", "inf", "nan", "none", "n/a", "-"} else text), 0
