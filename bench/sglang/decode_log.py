"""What decode lines say of a server: its speed without idle time, and where acceptance collapsed.

Each line covers one interval of decode steps (40 by default) of one rank, so that lines weigh
alike in means of steps.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bench.sglang.log_lines import DecodeLine

IDLE_STEP_FACTOR = 5.0
"""A step that seems to take more than so many usual steps has idle time in its interval."""

COLLAPSED_TOK = 1.05
"""An accept length up to this is a step that yields the bonus token alone."""

LEAST_COLLAPSED = 2
"""So many readings in a row are an episode; a single one may be a short interval's chance."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeSpeed:
    """Speed by a log's decode lines.

    Attributes:
        after_idle: Indices of lines whose interval has idle time in it: no rate is taken from
            them. Their accept length is as good as any.
        gen_tok_per_s: Mean of the other lines' throughput; None when none tells.
        step_ms: Mean time of a step by these lines; with speculation a step drafts and verifies.
        accept_len_tok: Mean over all lines that tell one: each counts the same number of steps.
    """

    after_idle: tuple[int, ...]
    gen_tok_per_s: float | None
    step_ms: float | None
    accept_len_tok: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Collapse:
    """Readings in a row of one rank with hardly a draft accepted.

    Attributes:
        indices: Of the readings, in order.
    """

    indices: tuple[int, ...]


def decode_speed(lines: Sequence[DecodeLine]) -> DecodeSpeed:
    """Mean speed by decode lines; those whose interval began before an idle time are left out.

    A line's throughput is tokens over the time since the rank's last line, idle time included. It
    is told by the time that its steps seem to take, against the median of its rank: unlike
    throughput, this does not change with the number of requests or with acceptance.
    """
    step_ms = [_step_ms(line) for line in lines]
    after_idle: set[int] = set()
    for indices in _by_rank(lines).values():
        timed = {i: ms for i in indices if (ms := step_ms[i]) is not None}
        usual_ms = statistics.median_low(timed.values()) if timed else 0.0
        after_idle |= {
            i for i, ms in timed.items() if math.isinf(ms) or ms > IDLE_STEP_FACTOR * usual_ms
        }
    steady = [i for i in range(len(lines)) if i not in after_idle]
    return DecodeSpeed(
        after_idle=tuple(sorted(after_idle)),
        gen_tok_per_s=_mean([lines[i].gen_tok_per_s for i in steady]),
        step_ms=_mean([step_ms[i] for i in steady]),
        accept_len_tok=_mean([line.accept_len_tok for line in lines]),
    )


def _step_ms(line: DecodeLine) -> float | None:
    """The time of a step: the tokens that it yields over tokens a second; infinite at 0.00."""
    if line.gen_tok_per_s is None or not line.running_ct:
        return None
    tokens = line.running_ct * (1.0 if line.accept_len_tok is None else line.accept_len_tok)
    return tokens / line.gen_tok_per_s * 1e3 if line.gen_tok_per_s else math.inf


def _by_rank(lines: Sequence[DecodeLine]) -> Mapping[tuple[int | None, ...], list[int]]:
    indices: dict[tuple[int | None, ...], list[int]] = defaultdict(list)
    for index, line in enumerate(lines):
        indices[line.prefix.ranks].append(index)
    return indices


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if known else None


def collapses(lines: Sequence[DecodeLine]) -> list[Collapse]:
    """Every episode of collapsed acceptance, of whichever rank, by its first line.

    Seen in public: whole batches fall to an accept length of 1.00 for minutes while the server is
    full. The output stays right and the mean hides it, but each step drafts for nothing.
    """
    return sorted(
        (
            Collapse(indices=tuple(indices[i] for i in episode.indices))
            for indices in _by_rank(lines).values()
            for episode in collapsed([lines[i].accept_len_tok for i in indices])
        ),
        key=lambda episode: episode.indices[0],
    )


def collapsed(accept_len_tok: Sequence[float | None]) -> list[Collapse]:
    """Episodes in one rank's accept lengths; a reading without a value is passed over.

    Args:
        accept_len_tok: Readings in the order of time.
    """
    episodes, run = [], []
    for index, length in enumerate([*accept_len_tok, math.inf]):
        if length is None:
            continue
        if length <= COLLAPSED_TOK:
            run.append(index)
            continue
        if len(run) >= LEAST_COLLAPSED:
            episodes.append(Collapse(indices=tuple(run)))
        run = []
    return episodes
