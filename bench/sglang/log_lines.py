"""SGLang's log: decode and prefill batch lines of any version.

Formats: SGLang 0.5.23 (`scheduler_components/metrics_reporter.py`) and the older forms seen in
public logs. Every field is looked for by itself, in any order, so that an unknown field in between
or a line that a terminal cut keeps what parses. What a line says of the server's speed:
`decode_log`; lines of a start: `start_lines`; of failures: `failures`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from bench.sglang.log_text import clipped, without_escapes

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


@dataclass(frozen=True, slots=True, kw_only=True)
class LogPrefix:
    """The bracket in front of a line: `[2026-04-05 20:02:51 DP0 PP0 TP1 EP1]`.

    Attributes:
        time_text: The server's local date and time, as written; None without one.
        dp_rank: Data-parallel rank; None when the line names none, as for the others.
        tp_rank: Tensor-parallel rank.
        pp_rank: Pipeline-parallel rank.
        ep_rank: Expert-parallel rank.
        cp_rank: Context-parallel rank of the attention (`ATTN_CP`).
        moe_dp_rank: Data-parallel rank of the experts (`MOE_DP`).
    """

    time_text: str | None
    dp_rank: int | None
    tp_rank: int | None
    pp_rank: int | None = None
    ep_rank: int | None = None
    cp_rank: int | None = None
    moe_dp_rank: int | None = None

    @property
    def ranks(self) -> tuple[int | None, ...]:
        """Which of the server's schedulers wrote the line."""
        return (
            self.dp_rank,
            self.pp_rank,
            self.tp_rank,
            self.ep_rank,
            self.cp_rank,
            self.moe_dp_rank,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeLine:
    """One `Decode batch` line: an interval of decode steps (40 by default) of one rank.

    Attributes:
        prefix: When, and which rank.
        iteration: The scheduler's step number; only with SGLANG_LOG_FORWARD_ITERS.
        running_ct: Requests decoded together.
        kv_tok: Tokens held in the KV cache (of the full-attention layers in hybrid models).
        token_usage: Share of the KV cache in use.
        swa_tok: Tokens held for sliding-window layers; hybrid models only.
        swa_usage: Share of the sliding-window cache in use.
        mamba_ct: States held for mamba layers; hybrid models only.
        mamba_usage: Share of these states in use.
        accept_len_tok: Accepted drafts and the bonus token a step, over the interval.
        accept_rate: What the server calls so; its meaning changed (`accept_rate`).
        cap_len_tok: DSpark's cap.
        block_accept_len_tok: DSpark's length by blocks.
        retracted_ct: Requests thrown out of the batch and waiting; disaggregated decode only.
        cuda_graph: Whether the last step ran from a graph (CUDA, CPU, NPU or MUSA).
        gen_tok_per_s: Tokens over the wall time since the last line: idle time and prefill
            included, so the first line after idleness says nothing.
        queue_ct: Requests waiting.
        is_truncated: Whether a field that every such line has is missing.
    """

    prefix: LogPrefix
    iteration: int | None = None
    running_ct: int | None
    kv_tok: int | None
    token_usage: float | None
    swa_tok: int | None = None
    swa_usage: float | None = None
    mamba_ct: int | None = None
    mamba_usage: float | None = None
    accept_len_tok: float | None
    accept_rate: float | None
    cap_len_tok: float | None
    block_accept_len_tok: float | None = None
    retracted_ct: int | None = None
    cuda_graph: bool | None
    gen_tok_per_s: float | None
    queue_ct: int | None
    is_truncated: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefillLine:
    """One `Prefill batch` line.

    Attributes:
        prefix: When, and which rank.
        iteration: The scheduler's step number; only with SGLANG_LOG_FORWARD_ITERS.
        new_request_ct: Requests prefilled together.
        new_tok: Tokens computed.
        cached_tok: Tokens found in the prefix cache.
        cache_hit_rate: Share of prompt tokens found there since the start; old versions only.
        token_usage: Share of the KV cache in use (of the full-attention layers in hybrid models).
        swa_usage: Share of the sliding-window cache in use; hybrid models only.
        mamba_usage: Share of the mamba states in use; hybrid models only.
        running_ct: Requests decoding meanwhile.
        queue_ct: Requests waiting.
        pending_tok: Prompt tokens that wait.
        cuda_graph: Whether the step ran from a graph.
        input_tok_per_s: Tokens over the wall time since the last line.
        is_truncated: Whether a field that every such line has is missing.
    """

    prefix: LogPrefix
    iteration: int | None = None
    new_request_ct: int | None
    new_tok: int | None
    cached_tok: int | None
    cache_hit_rate: float | None = None
    token_usage: float | None
    swa_usage: float | None = None
    mamba_usage: float | None = None
    running_ct: int | None
    queue_ct: int | None
    pending_tok: int | None = None
    cuda_graph: bool | None
    input_tok_per_s: float | None
    is_truncated: bool


_TIME = r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:[.,]\d+)?"
_BRACKET = re.compile(rf"\[(?P<time>{_TIME})(?P<ranks>[^\]]*)\]")
_BARE_TIME = re.compile(_TIME)
_ENTRY_START = re.compile(rf"(?=\[{_TIME}[^\]]{{0,160}}\])")
_BATCH = re.compile(
    r"\b(?P<kind>Decode|Prefill) batch\b(?: ?\[(?P<iteration>\d{1,18})\])?(?P<fields>.*)"
)
_BATCH_START = re.compile(r"(?:Decode|Prefill) batch\b")
# Requests that are logged, and their access log: what they quote is their user's text.
_QUOTING = re.compile(r"\b(?:Receive|Finish): obj=|\b\w+Req(?:uest|Input)\(|\"(?:GET|POST|PUT) /")
_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")
_BLANKS = re.compile(r"[\t\u00a0]+")
# Behind a number may come the end of a text that the line is quoted in, as in a log of JSON.
_NUMBER = re.compile(r"(?P<number>\d{1,18}(?:\.\d+)?)(?P<unit>%?)(?=$|[\"'\])}])")
# SGLang prints two decimals: such a value, or a word, is whole even at the end of a cut line.
_SURELY_WHOLE = re.compile(r"\d+\.\d\d%?|True|False")

_QUEUE, _GENERATED, _READ = "#queue-req", "gen throughput (token/s)", "input throughput (token/s)"
# Only lines of one kind have these, which tells a line that lost its beginning.
_DECODE_ONLY, _PREFILL_ONLY = frozenset({_GENERATED}), frozenset({_READ, "#new-seq", "#new-token"})


def parse_batch_lines(lines: Iterable[str]) -> list[DecodeLine | PrefillLine]:
    """The decode and prefill lines of a log, in order; ranks that share a line are split."""
    parsed = (parse_batch_line(entry) for line in lines for entry in _entries(line))
    return [batch for batch in parsed if batch is not None]


def _entries(line: str) -> Iterator[str]:
    """What was written into one line, each with the prefix before it, if it has one."""
    for entry in _ENTRY_START.split(line):
        starts = [match.start() for match in _BATCH_START.finditer(entry)]
        edges = [0, *starts[1:], len(entry)]
        yield from (entry[start:end] for start, end in pairwise(edges))


def parse_batch_line(line: str) -> DecodeLine | PrefillLine | None:
    """The fields of a decode or prefill batch line; None for a line that has none of them."""
    text = _BLANKS.sub(" ", without_escapes(clipped(line)))
    batch = _BATCH.search(text)
    if batch is None:
        return _without_beginning(text)
    if _QUOTING.search(text, 0, batch.start()):
        return None
    fields, is_cut = _fields(batch["fields"])
    if not fields:
        return None
    iteration = int(batch["iteration"]) if batch["iteration"] else None
    parse = _decode if batch["kind"] == "Decode" else _prefill
    return parse(parse_prefix(text[: batch.start()]), iteration, fields, is_cut=is_cut)


def _without_beginning(text: str) -> DecodeLine | PrefillLine | None:
    """A line whose head a terminal cut off, if its fields tell its kind."""
    if (_GENERATED not in text and _READ not in text) or _QUOTING.search(text):
        return None
    fields, _ = _fields(text)
    prefix = LogPrefix(time_text=None, dp_rank=None, tp_rank=None)
    if fields.keys() & _DECODE_ONLY:
        return _decode(prefix, None, fields, is_cut=True)
    if fields.keys() & _PREFILL_ONLY:
        return _prefill(prefix, None, fields, is_cut=True)
    return None


def _decode(
    prefix: LogPrefix, iteration: int | None, fields: dict[str, str], *, is_cut: bool
) -> DecodeLine:
    return DecodeLine(
        prefix=prefix,
        iteration=iteration,
        running_ct=_count(fields, "#running-req"),
        kv_tok=_count(fields, "#token", "#full token"),
        token_usage=_number(fields, "token usage", "full token usage"),
        swa_tok=_count(fields, "#swa token"),
        swa_usage=_number(fields, "swa token usage"),
        mamba_ct=_count(fields, "mamba num", "#mamba num"),
        mamba_usage=_number(fields, "mamba usage"),
        accept_len_tok=_number(fields, "accept len"),
        accept_rate=_number(fields, "accept rate"),
        cap_len_tok=_number(fields, "cap len"),
        block_accept_len_tok=_number(fields, "block accept len"),
        retracted_ct=_count(fields, "#retracted-req"),
        cuda_graph=_graph(fields),
        gen_tok_per_s=_number(fields, _GENERATED),
        queue_ct=_count(fields, _QUEUE),
        is_truncated=is_cut or _GENERATED not in fields or "#running-req" not in fields,
    )


def _prefill(
    prefix: LogPrefix, iteration: int | None, fields: dict[str, str], *, is_cut: bool
) -> PrefillLine:
    # Old lines end with the queue; in newer ones the tokens that wait and the throughput follow.
    goes_on = "#pending-token" in fields or _graph(fields) is not None
    return PrefillLine(
        prefix=prefix,
        iteration=iteration,
        new_request_ct=_count(fields, "#new-seq"),
        new_tok=_count(fields, "#new-token"),
        cached_tok=_count(fields, "#cached-token"),
        cache_hit_rate=_number(fields, "cache hit rate"),
        token_usage=_number(fields, "token usage", "full token usage"),
        swa_usage=_number(fields, "swa token usage"),
        mamba_usage=_number(fields, "mamba usage"),
        running_ct=_count(fields, "#running-req"),
        queue_ct=_count(fields, _QUEUE),
        pending_tok=_count(fields, "#pending-token"),
        cuda_graph=_graph(fields),
        input_tok_per_s=_number(fields, _READ),
        is_truncated=is_cut or (goes_on and _READ not in fields),
    )


def parse_prefix(line: str) -> LogPrefix:
    """The date and ranks in front of a log line.

    With a logging configuration of the user's the date may stand outside the bracket.
    """
    bracket = _BRACKET.search(line)
    time = _BARE_TIME.search(line)
    where = bracket["ranks"] if bracket else line
    return LogPrefix(
        time_text=bracket["time"] if bracket else time[0] if time else None,
        dp_rank=_rank(where, "DP"),
        tp_rank=_rank(where, "TP"),
        pp_rank=_rank(where, "PP"),
        ep_rank=_rank(where, "EP"),
        cp_rank=_rank(where, "ATTN_CP"),
        moe_dp_rank=_rank(where, "MOE_DP"),
    )


def _rank(text: str, kind: str) -> int | None:
    match = re.search(rf"\b{kind}(\d{{1,6}})\b", text)
    return int(match[1]) if match else None


def _fields(text: str) -> tuple[dict[str, str], bool]:
    """The `name: value` pairs of a batch line, and whether the line was cut.

    A whole line has `#queue-req`. The last value of a cut line may be cut itself: it is kept only
    where its form says that it is whole.
    """
    pairs = [part.partition(": ") for part in _THOUSANDS.sub("", text).split(",")]
    fields = {name.strip(" ."): value.strip() for name, _, value in pairs if value.strip()}
    is_cut = _QUEUE not in fields
    name, _, last = pairs[-1]
    if is_cut and last and not _SURELY_WHOLE.fullmatch(last.strip()):
        fields.pop(name.strip(" ."), None)
    return fields, is_cut


def _number(fields: dict[str, str], *names: str) -> float | None:
    """The first of several fields that is a number; one in per cent as a share."""
    for name in names:
        match = _NUMBER.match(fields.get(name, ""))
        if match:
            return float(match["number"]) / (100 if match["unit"] else 1)
    return None


def _count(fields: dict[str, str], *names: str) -> int | None:
    number = _number(fields, *names)
    return None if number is None else int(number)


def _graph(fields: dict[str, str]) -> bool | None:
    for name, value in fields.items():
        if name.endswith(" graph") and value in {"True", "False"}:
            return value == "True"
    return None
