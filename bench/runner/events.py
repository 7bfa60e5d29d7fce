"""What the runner tells the console, one record a step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bench.load.generator import Progress
    from bench.model import Cell, Finding, Launch, LaunchRecord, Measurement


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchStarting:
    """A server is being started."""

    launch: Launch
    launches: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchProgress:
    """What the starting server is doing, in its own words."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchReady:
    """A server that was started has generated tokens."""

    record: LaunchRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchEnded:
    """A server is gone, or failed to come."""

    record: LaunchRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class CellStarting:
    """A cell begins."""

    cell: Cell
    done: int
    total: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CellProgress:
    """About twice a second while a cell is measured."""

    cell: Cell
    progress: Progress


@dataclass(frozen=True, slots=True, kw_only=True)
class CellFinished:
    """A cell is measured and stored."""

    cell: Cell
    measurement: Measurement
    findings: tuple[Finding, ...]
    done: int
    total: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Noted:
    """Something went otherwise than planned, and what is done about it, in a sentence."""

    text: str


Event = (
    LaunchStarting
    | LaunchProgress
    | LaunchReady
    | LaunchEnded
    | CellStarting
    | CellProgress
    | CellFinished
    | Noted
)


def say_nothing(_event: Event) -> None:
    """For callers that do not listen."""
