"""SGLang's log under adaptive speculation: each switch of the draft steps, among the prefills.

Format: SGLang 0.5.23 (`speculative/eagle_worker_v2.py`, `apply_runtime_state`), written by the
first rank when the batch before the switch has been handled. Dates in a log are whole seconds and
switches may be many a second: it is the order of lines that tells.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from bench.sglang.log_lines import DecodeLine, PrefillLine, parse_batch_line, parse_prefix

if TYPE_CHECKING:
    from collections.abc import Iterable

_SWITCH: Final = re.compile(
    r"Switch adaptive runtime state: steps (?P<before>\d{1,9}) -> (?P<after>\d{1,9})\b"
)
_FLUSHED: Final = "Cache flushed successfully!"


@dataclass(frozen=True, slots=True, kw_only=True)
class SwitchLine:
    """One switch.

    Attributes:
        before: Draft steps of the batches before it.
        after: Of those after it.
        started_ct: Requests that had been prefilled since the cache was emptied.
    """

    before: int
    after: int
    started_ct: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedLine:
    """A decode line, and what stands before it since the cache was emptied.

    Attributes:
        line: The line.
        switch_ct: Switches.
        since_switch: Decode lines since the last of these, or since the beginning.
        started_ct: Requests that had been prefilled.
    """

    line: DecodeLine
    switch_ct: int
    since_switch: int
    started_ct: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSection:
    """What a log has between two times that the cache was emptied: a cell, if bench did it.

    Attributes:
        switches: In order.
        decodes: Decode lines, in order.
        started_ct: Requests that were prefilled, one that took several chunks as often.
    """

    switches: tuple[SwitchLine, ...]
    decodes: tuple[PlacedLine, ...]
    started_ct: int


class _Open:
    """A section as it is read."""

    def __init__(self) -> None:
        self.switches: list[SwitchLine] = []
        self.decodes: list[PlacedLine] = []
        self.started_ct = 0
        self._since_switch = 0

    def take(self, line: str) -> None:
        if switch := _SWITCH.search(line):
            before, after = int(switch["before"]), int(switch["after"])
            self.switches.append(
                SwitchLine(before=before, after=after, started_ct=self.started_ct)
            )
            self._since_switch = 0
            return
        batch = parse_batch_line(line) if " batch" in line else None
        if batch is None or batch.prefix.tp_rank not in {None, 0}:
            return
        if isinstance(batch, PrefillLine):
            self.started_ct += batch.new_request_ct or 0
            return
        self.decodes.append(
            PlacedLine(
                line=batch,
                switch_ct=len(self.switches),
                since_switch=self._since_switch,
                started_ct=self.started_ct,
            )
        )
        self._since_switch += 1

    def closed(self) -> LogSection:
        return LogSection(
            switches=tuple(self.switches),
            decodes=tuple(self.decodes),
            started_ct=self.started_ct,
        )


def switch_sections(lines: Iterable[str]) -> list[LogSection]:
    """A log by the times that the cache was emptied; sections without a request are left out."""
    sections = [_Open()]
    for line in lines:
        # Every rank says so, in no order to the first one's other lines.
        if _FLUSHED in line:
            if parse_prefix(line).tp_rank in {None, 0}:
                sections.append(_Open())
        else:
            sections[-1].take(line)
    return [section.closed() for section in sections if section.started_ct]
