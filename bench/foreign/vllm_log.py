"""vLLM's log: speculation metrics and engine throughput, of any version.

The order of fields and the label of the rate differ between versions; the oldest engine (V0) tells
other counts altogether. Source: vLLM `v1/spec_decode/metrics.py`, `v1/metrics/loggers.py`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from bench.sglang.log_text import clipped, without_escapes

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


@dataclass(frozen=True, slots=True, kw_only=True)
class SpecLine:
    """Speculation over one logging interval (10 s by default); None where the line tells none.

    Attributes:
        time_text: `MM-DD HH:MM:SS` in the server's local time, as written.
        accept_len_tok: Tokens a step yields, bonus token in it: 1 + accepted / drafts.
        accept_rate: Accepted / drafted draft tokens, a share.
        accepted_tok: Draft tokens accepted. The V0 engine counts those behind a rejected one too.
        drafted_tok: Draft tokens proposed.
        accepted_tok_per_s: Accepted, a second.
        drafted_tok_per_s: Drafted, a second.
        accept_at_position: P(at least k drafts accepted), k = 1, 2, …
        depth: Draft tokens a step, as told or by the positions.
        is_truncated: Whether the line was cut.
    """

    time_text: str | None
    accept_len_tok: float | None
    accept_rate: float | None
    accepted_tok: int | None
    drafted_tok: int | None
    accepted_tok_per_s: float | None
    drafted_tok_per_s: float | None
    accept_at_position: tuple[float, ...]
    depth: int | None
    is_truncated: bool

    @property
    def length_agrees(self) -> bool | None:
        """Whether 1 + the sum over positions is the length told; None without both."""
        if self.accept_len_tok is None or not self.accept_at_position:
            return None
        off = abs(self.accept_len_tok - 1 - sum(self.accept_at_position))
        return off <= _HALF_OF_2 + _HALF_OF_3 * len(self.accept_at_position) + _FLOAT

    @property
    def rate_agrees(self) -> bool | None:
        """Whether accepted / drafted is the rate told; None without all three."""
        if self.accept_rate is None or self.accepted_tok is None or not self.drafted_tok:
            return None
        return abs(self.accept_rate - self.accepted_tok / self.drafted_tok) <= _HALF_OF_3 + _FLOAT

    @property
    def depth_agrees(self) -> bool | None:
        """Whether the rate is the positions' mean, as it is while every draft has full depth.

        None without both. False is no mistake where drafts have different lengths (n-grams,
        dynamic depth).
        """
        if self.accept_rate is None or not self.accept_at_position:
            return None
        mean = sum(self.accept_at_position) / len(self.accept_at_position)
        return abs(self.accept_rate - mean) <= 2 * _HALF_OF_3 + _FLOAT


# Half a unit of the last printed place: lengths have 2 decimals, rates 3 (per cent with one).
_HALF_OF_2: Final = 0.005
_HALF_OF_3: Final = 0.0005
_FLOAT: Final = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineLine:
    """An engine over one logging interval; None where the line tells none.

    Attributes:
        time_text: `MM-DD HH:MM:SS` in the server's local time, as written.
        engine: Data-parallel rank.
        prompt_tok_per_s: Prompt tokens a second.
        output_tok_per_s: Generated tokens a second, idle time in it.
        running_ct: Requests in the batch.
        waiting_ct: Requests waiting.
        kv_usage: Share of the KV cache in use.
        cache_hit_rate: Share of prompt tokens found in the prefix cache.
    """

    time_text: str | None
    engine: int | None
    prompt_tok_per_s: float | None
    output_tok_per_s: float | None
    running_ct: int | None
    waiting_ct: int | None
    kv_usage: float | None
    cache_hit_rate: float | None


_TIME = re.compile(r"\b(?:\d{4}-)?\d\d-\d\d \d\d:\d\d:\d\d\b")
_SPEC = re.compile(r"SpecDecoding metrics:(?P<rest>.*)")
_SPEC_V0 = re.compile(r"Speculative metrics:(?P<rest>.*)")
_ENGINE = re.compile(r"(?:Engine (?P<engine>\d{1,6}): )?(?P<rest>Avg prompt throughput: .*)")
_START = re.compile(
    r"(?:SpecDecoding|Speculative) metrics:|(?:Engine \d{1,6}: )?Avg prompt throughput: "
)
_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")
_EMITTED = re.compile(r"Number of emitted tokens: (\d{1,18})\.")
_NO_RATE = re.compile(r"[Aa]cceptance rate: nan%")
_DECIMALS: Final = 3
_RATE = re.compile(r"\d{1,3}(?:\.\d{1,18})?")
_POSITIONS = re.compile(r"Per-position acceptance rate: (?P<rates>[\d., ]+)")


def parse_vllm_log(lines: Iterable[str]) -> list[SpecLine | EngineLine]:
    """The speculation and engine lines of a log, in order."""
    parsed = (parse_vllm_line(entry) for line in lines for entry in _entries(line))
    return [entry for entry in parsed if entry is not None]


def _entries(line: str) -> Iterator[str]:
    """What was written into one line; a date belongs to what comes after it."""
    starts = [match.start() for match in _START.finditer(line)]
    times = [match.start() for match in _TIME.finditer(line)]
    edges = [0]
    for before, start in pairwise(starts):
        edges.append(max((time for time in times if before < time < start), default=start))
    yield from (line[start:end] for start, end in pairwise([*edges, len(line)]))


def parse_vllm_line(line: str) -> SpecLine | EngineLine | None:
    """One of these lines; None for any other."""
    line = _THOUSANDS.sub("", without_escapes(clipped(line)))
    time = _TIME.search(line)
    time_text = time[0] if time else None
    if match := _SPEC.search(line):
        return _spec(match["rest"], time_text)
    if match := _SPEC_V0.search(line):
        return _spec_v0(match["rest"], time_text)
    if match := _ENGINE.search(line):
        return _engine(match, time_text)
    return None


def _spec(text: str, time_text: str | None) -> SpecLine:
    at_position, is_cut = _positions(text)
    depth = _number(text, "Current speculative depth")
    accepted, drafted = _number(text, "Accepted"), _number(text, "Drafted")
    rate = _share(text, "(?:Avg )?Draft acceptance rate")
    return SpecLine(
        time_text=time_text,
        accept_len_tok=_number(text, "Mean acceptance length"),
        accept_rate=rate,
        accepted_tok=None if accepted is None else int(accepted),
        drafted_tok=None if drafted is None else int(drafted),
        accepted_tok_per_s=_number(text, "Accepted throughput"),
        drafted_tok_per_s=_number(text, "Drafted throughput"),
        accept_at_position=at_position,
        depth=(None if is_cut else len(at_position) or None) if depth is None else int(depth),
        is_truncated=is_cut or drafted is None or (rate is None and not _NO_RATE.search(text)),
    )


def _positions(text: str) -> tuple[tuple[float, ...], bool]:
    """P(at least k accepted), and whether a line that ends with them was cut there.

    Older lines end so, and only their mean length tells of values that are missing. A last value
    that may have been shortened is left out.
    """
    match = _POSITIONS.search(text)
    if match is None:
        return (), text.rstrip().endswith("acceptance rate:")
    rates = [rate.strip() for rate in match["rates"].split(",") if rate.strip()]
    is_last = not text[match.end() :].strip()
    if rates and is_last and len(rates[-1].partition(".")[2]) < _DECIMALS:
        rates.pop()
    told = tuple(float(rate) for rate in rates if _RATE.fullmatch(rate))
    length = _number(text, "Mean acceptance length")
    lacks = length is not None and length - 1 - sum(told) > _HALF_OF_2 + _HALF_OF_3 * len(told)
    return told, is_last and lacks


def _spec_v0(text: str, time_text: str | None) -> SpecLine:
    """The V0 engine's line; what a step emits, bonus token in it, gives the length."""
    depth, drafted = (
        _number(text, "Number of speculative tokens"),
        _number(text, "Number of draft tokens"),
    )
    accepted, emitted = _number(text, "Number of accepted tokens"), _EMITTED.search(text)
    steps = drafted / depth if drafted and depth else None
    return SpecLine(
        time_text=time_text,
        accept_len_tok=int(emitted[1]) / steps if emitted and steps else None,
        accept_rate=_number(text, "Draft acceptance rate"),
        accepted_tok=None if accepted is None else int(accepted),
        drafted_tok=None if drafted is None else int(drafted),
        accepted_tok_per_s=None,
        drafted_tok_per_s=None,
        accept_at_position=(),
        depth=None if depth is None else int(depth),
        is_truncated=emitted is None,
    )


def _engine(match: re.Match[str], time_text: str | None) -> EngineLine:
    text = match["rest"]
    running, waiting = _number(text, "Running"), _number(text, "(?:Waiting|Pending)")
    return EngineLine(
        time_text=time_text,
        engine=int(match["engine"]) if match["engine"] else None,
        prompt_tok_per_s=_number(text, "Avg prompt throughput"),
        output_tok_per_s=_number(text, "Avg generation throughput"),
        running_ct=None if running is None else int(running),
        waiting_ct=None if waiting is None else int(waiting),
        kv_usage=_share(text, "GPU KV cache usage"),
        cache_hit_rate=_share(text, "Prefix cache hit rate"),
    )


def _number(text: str, label: str) -> float | None:
    """The number behind a label, unless the line ends within it."""
    match = re.search(rf"(?:^|[ ,]){label}: (\d{{1,18}}(?:\.\d+)?)(?=[ ,%])", text)
    return float(match[1]) if match else None


def _share(text: str, label: str) -> float | None:
    """A value in per cent, as a share."""
    match = re.search(rf"(?:^|[ ,]){label}: (\d{{1,18}}(?:\.\d+)?)%", text)
    return float(match[1]) / 100 if match else None
