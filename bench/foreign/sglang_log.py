"""What a log of SGLang tells, whoever started the server: its start, its speed, its end."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from bench.errors import InputError
from bench.sglang.accept_rate import AcceptRate, accept_rate_meaning, accept_rate_of_depth
from bench.sglang.decode_log import Collapse, DecodeSpeed, collapses, decode_speed
from bench.sglang.failures import Failure, FailureClass, classify_start, find_failure
from bench.sglang.log_lines import DecodeLine, PrefillLine, parse_batch_lines
from bench.sglang.log_text import read_text
from bench.sglang.start_lines import LimitsLine, StartTimes, parse_start_line, start_times

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

_DRAFT_TOKENS = re.compile(r"speculative_num_draft_tokens['\"]?[=:] ?(\d+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class SglangLog:
    """A log of SGLang, read.

    Attributes:
        became: `ready`, the class of the failure that ended it, or None: it was still starting.
        failure: The failure with the line that tells it and what to do; None without one.
        times: What the start was spent on.
        limits: What the server can hold; None when no line tells.
        num_draft_tokens: Tokens verified a step, as the server's arguments have it.
        decode: Its decode lines, in order.
        prefill: Its prefill lines, in order.
        speed: By the decode lines, those after an idle time left out; None without such lines.
        collapses: Episodes in which hardly a draft was accepted; indices are of `decode`.
        accept_rate_is: What the printed `accept rate` divides, where its lines agree on that.
        accept_rate_of_depth: Mean of accepted drafts / (steps × verifies), whatever the printed
            rate means; None for trees and without speculation.
    """

    became: FailureClass | Literal["ready"] | None
    failure: Failure | None
    times: StartTimes
    limits: LimitsLine | None
    num_draft_tokens: int | None
    decode: tuple[DecodeLine, ...]
    prefill: tuple[PrefillLine, ...]
    speed: DecodeSpeed | None
    collapses: tuple[Collapse, ...]
    accept_rate_is: AcceptRate | None
    accept_rate_of_depth: float | None


def read_sglang_log(path: Path, *, exit_code: int | None = None) -> SglangLog:
    """Read a log file.

    Args:
        path: The file.
        exit_code: Of the server, if it has ended; negative: a signal.

    Raises:
        InputError: It cannot be read.
    """
    try:
        text = read_text(path)
    except OSError as error:
        raise InputError(f"asked to read the log {path}: {error.strerror}.") from error
    return parse_sglang_log(text.splitlines(), exit_code=exit_code)


def parse_sglang_log(lines: Sequence[str], *, exit_code: int | None = None) -> SglangLog:
    """The same of its lines."""
    batches = parse_batch_lines(lines)
    decode = tuple(batch for batch in batches if isinstance(batch, DecodeLine))
    steps = [step for line in lines if isinstance(step := parse_start_line(line), LimitsLine)]
    told = next((found[1] for line in lines if (found := _DRAFT_TOKENS.search(line))), None)
    drafts = None if told is None else int(told)
    became = classify_start(lines, exit_code=exit_code, silent_s=0)
    return SglangLog(
        became=became,
        failure=find_failure(lines) if isinstance(became, FailureClass) else None,
        times=start_times(lines),
        limits=steps[-1] if steps else None,
        num_draft_tokens=drafts,
        decode=decode,
        prefill=tuple(batch for batch in batches if isinstance(batch, PrefillLine)),
        speed=decode_speed(decode) if decode else None,
        collapses=tuple(collapses(decode)),
        accept_rate_is=_meaning(decode, drafts),
        accept_rate_of_depth=_of_depth(decode, drafts),
    )


def _meaning(decode: Sequence[DecodeLine], drafts: int | None) -> AcceptRate | None:
    """Of lines that fit both definitions none counts; None as well where lines contradict."""
    found = {
        accept_rate_meaning(line.accept_len_tok, line.accept_rate, drafts)
        for line in decode
        if drafts is not None and line.accept_len_tok is not None and line.accept_rate is not None
    } - {None}
    return found.pop() if len(found) == 1 else None


def _of_depth(decode: Sequence[DecodeLine], drafts: int | None) -> float | None:
    """Each line counts the same number of steps. A chain's lines alone fit a definition."""
    if drafts is None or _meaning(decode, drafts) is None:
        return None
    lengths = [line.accept_len_tok for line in decode if line.accept_len_tok is not None]
    return accept_rate_of_depth(sum(lengths) / len(lengths), drafts)
