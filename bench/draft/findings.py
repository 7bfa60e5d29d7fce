"""What a rule found in a draft."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Level(StrEnum):
    """How much a finding says.

    fault: the files alone prove that SGLang will not start with the draft, or that it will
    compute something else than was trained. suspect: so if the draft was trained as most are,
    which the files do not say. note: worth knowing.
    """

    FAULT = "fault"
    SUSPECT = "suspect"
    NOTE = "note"


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftFinding:
    """A rule that struck.

    Attributes:
        rule: Its id in docs/draft-doctor.md: `M8`, `form`, ….
        level: How much it says.
        what: What is wrong, in one sentence.
        evidence: The keys, shapes and values it was seen by.
        consequence: What SGLang makes of it.
        fix: What to do.
    """

    rule: str
    level: Level
    what: str
    evidence: tuple[str, ...]
    consequence: str
    fix: str


def fault(rule: str, what: str, *evidence: str, consequence: str, fix: str) -> DraftFinding:
    """A finding that the files prove."""
    return _finding(Level.FAULT, rule, what, evidence, consequence, fix)


def suspect(rule: str, what: str, *evidence: str, consequence: str, fix: str) -> DraftFinding:
    """A finding that depends on how the draft was trained."""
    return _finding(Level.SUSPECT, rule, what, evidence, consequence, fix)


def note(rule: str, what: str, *evidence: str, consequence: str, fix: str) -> DraftFinding:
    """A finding that is no reproach."""
    return _finding(Level.NOTE, rule, what, evidence, consequence, fix)


def _finding(
    level: Level, rule: str, what: str, evidence: tuple[str, ...], consequence: str, fix: str
) -> DraftFinding:
    return DraftFinding(
        rule=rule, level=level, what=what, evidence=evidence, consequence=consequence, fix=fix
    )
