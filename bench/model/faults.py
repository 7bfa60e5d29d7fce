"""Faults that a simulated server is asked to have: how they are written, and what they may say.

A fault is `NAME` or `NAME:KEY=VALUE:KEY=VALUE…`; docs/faults.md tells what each does.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import Final, Literal

Acts = Literal["start", "moment", "state", "request"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultKind:
    """What one name means.

    Attributes:
        acts: `start`: before the server is ready; `moment`: once; `state`: for a time; `request`:
            on single requests.
        amount: The key of its own number; None: it has none.
        default: That number when it is not given; None: for good, or drawn for each request.
        least: The lowest that it may be.
        most: The highest.
    """

    acts: Acts
    amount: str | None = None
    default: float | None = None
    least: float = 0.0
    most: float = 1e9


FAULT_KINDS: Final[dict[str, FaultKind]] = {
    "slow-boot": FaultKind(acts="start", amount="s", default=60.0),
    "oom-load": FaultKind(acts="start"),
    "oom-capture": FaultKind(acts="start"),
    "hang-capture": FaultKind(acts="start"),
    "crash": FaultKind(acts="moment"),
    "hang": FaultKind(acts="state"),
    "ignore-term": FaultKind(acts="state"),
    "accept-collapse": FaultKind(acts="state"),
    "throttle": FaultKind(acts="state", amount="by", default=1.5, least=1.0, most=1000.0),
    "drift": FaultKind(acts="state", amount="per_min", default=0.1, least=-0.5, most=100.0),
    "clock-step": FaultKind(acts="state", amount="s", default=3600.0, least=-1e9),
    "counters": FaultKind(acts="state", amount="by", default=0.3, least=-1.0, most=100.0),
    "repeat": FaultKind(acts="request"),
    "stall": FaultKind(acts="request", amount="s"),
    "error": FaultKind(acts="request"),
    "reset": FaultKind(acts="request", amount="byte"),
    "status-503": FaultKind(acts="request"),
    "status-400": FaultKind(acts="request"),
    "nan": FaultKind(acts="request"),
    "long-lines": FaultKind(acts="request", amount="kib", default=160.0, least=1.0, most=65536.0),
}
"""Every fault there is, by name."""

_NUMBERS: Final[dict[str, tuple[Acts, ...]]] = {
    "cell": ("moment", "state", "request"),
    "after": ("moment", "state", "request"),
    "at": ("moment", "state", "request"),
    "for": ("state", "request"),
    "p": ("request",),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One fault.

    Attributes:
        text: As it was written.
        name: One of FAULT_KINDS.
        launch: Shell pattern of the launches that have it, e.g. `L00-*`; None: all.
        cell: It is had in this cell of the launch alone, counted from 1; 0 is the time before the
            first; None: always.
        after: How many requests come first: of the cell, or of all where no cell is given.
        at_s: How many seconds pass first: from the cell's begin, or from when the server is ready.
        for_s: How many seconds it then lasts; None: to the end.
        share: Of a fault of requests: the share of them that have it.
        amount: The kind's own number; None: for good, or drawn for each request.
    """

    text: str
    name: str
    launch: str | None = None
    cell: int | None = None
    after: int = 0
    at_s: float = 0.0
    for_s: float | None = None
    share: float = 1.0
    amount: float | None = None


def parse_fault(text: str) -> Fault:
    """Read one fault.

    Raises:
        ValueError: It is none; the message says what was found and what is possible.
    """
    if "," in text:  # a server gets all its faults in one argument, separated by commas
        raise ValueError(f"{text!r}: one fault has no comma in it; write each as its own entry")
    name, *pairs = text.strip().split(":")
    kind = FAULT_KINDS.get(name)
    if kind is None:
        close = difflib.get_close_matches(name, FAULT_KINDS, n=1)
        known = f"Did you mean {close[0]}?" if close else f"There are {', '.join(FAULT_KINDS)}"
        raise ValueError(f"{name!r} is no fault. {known}")
    given: dict[str, str] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not value or key in given or key not in _keys(kind):
            wanted = ", ".join(f"{key}=…" for key in _keys(kind))
            raise ValueError(f"{text!r}: {pair!r} does not fit {name}, which takes {wanted}")
        given[key] = value
    amount = kind.default
    if kind.amount in given:
        amount = _number(text, kind.amount, given[kind.amount], kind.least, kind.most)
    return Fault(
        text=text.strip(),
        name=name,
        launch=given.get("launch"),
        cell=_whole(text, "cell", given["cell"]) if "cell" in given else None,
        after=_whole(text, "after", given.get("after", "0")),
        at_s=_number(text, "at", given.get("at", "0"), 0.0, 1e9),
        for_s=_number(text, "for", given["for"], 0.0, 1e9) if "for" in given else None,
        share=_number(text, "p", given.get("p", "1"), 0.0, 1.0),
        amount=amount,
    )


def parse_faults(text: str) -> tuple[Fault, ...]:
    """Read several faults, separated by commas.

    Raises:
        ValueError: As `parse_fault`.
    """
    return tuple(parse_fault(part) for part in text.split(","))


def _keys(kind: FaultKind) -> list[str]:
    common = [key for key, acts in _NUMBERS.items() if kind.acts in acts]
    return [*([kind.amount] if kind.amount else []), "launch", *common]


def _number(text: str, key: str, value: str, least: float, most: float) -> float:
    try:
        number = float(value)
    except ValueError:
        number = float("nan")
    if not least <= number <= most:  # NaN is not
        raise ValueError(
            f"{text!r}: {key} must be a number from {least:g} to {most:g}, found {value!r}"
        )
    return number


def _whole(text: str, key: str, value: str) -> int:
    if not value.isdecimal() or len(value) > 9:
        raise ValueError(f"{text!r}: {key} must be a whole number, found {value!r}")
    return int(value)
