"""The findings of a run as remarks: what weakens its figures, and what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bench.model import FindingKind, Severity
from reports.blocks import Remark

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bench.model import Finding
    from bench.store import StoredRun
    from reports.blocks import Block

_TOLD_ABOVE = {FindingKind.SIMULATED, FindingKind.SIMULATION_SPEED}
_TONES = {Severity.INVALID: "bad", Severity.SUSPECT: "warn", Severity.NOTE: "note"}
_ORDER = {Severity.INVALID: 0, Severity.SUSPECT: 1, Severity.NOTE: 2}


def finding_remarks(stored: StoredRun) -> list[Block]:
    """One remark a kind and severity, gravest first; that there are none is said too."""
    places = {m.cell_id: f"{m.arm}, {m.workload}, load {m.load}" for m in stored.measurements}
    groups: dict[tuple[Severity, str], list[Finding]] = {}
    for finding in stored.findings:
        if finding.kind in _TOLD_ABOVE:
            continue
        groups.setdefault((finding.severity, finding.kind), []).append(finding)
    ordered = sorted(groups.items(), key=lambda group: (_ORDER[group[0][0]], group[0][1]))
    remarks: list[Block] = [
        _remark(severity, kind, members, places) for (severity, kind), members in ordered
    ]
    return remarks or ["Nothing was found that weakens the figures."]


def _remark(
    severity: Severity, kind: str, members: Sequence[Finding], places: Mapping[str, str]
) -> Remark:
    first = members[0]
    where = list(
        dict.fromkeys(places.get(f.cell_id, f.cell_id) for f in members if f.cell_id is not None)
    ) or list(dict.fromkeys(f.arm for f in members if f.arm is not None))
    shown = "; ".join(where[:3]) + (f" and {len(where) - 3} more" if len(where) > 3 else "")
    told = list(dict.fromkeys(_sentence(f.message) for f in members))
    several = told[:3] if first.cell_id is None else told[:1]
    more = f" (the first of {len(told)} such)" if len(told) > len(several) else ""
    return Remark(
        tone=_TONES[severity],
        title=f"{severity.upper()} {kind.replace('_', ' ')}",
        text=" ".join(several) + more,
        advice=first.advice,
        where=shown,
    )


def _sentence(message: str) -> str:
    """A message as a sentence of its own: an option's or a file's name stays as it is."""
    word = message.partition(" ")[0]
    begun = message[:1].upper() + message[1:] if word.isalpha() else message
    return begun if begun.endswith((".", "!", "?", "…")) else f"{begun}."
