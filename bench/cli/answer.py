"""The answer of a run: the question, one table, what weakens it with advice, where it lies."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bench.cli.output import Printer, many, print_json, resume_command, shown_path
from bench.cli.tables import plain_table
from bench.errors import EXIT_ANSWERED, EXIT_NO_VALID_CELL
from bench.model import BASELINE, CellStatus, FindingKind, Severity, Verdict
from bench.store import RunStatus, answer_json, can_retry, faults_of
from bench.store.study import is_study

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from rich.table import Table

    from bench.model import Comparison, Finding, Measurement
    from bench.store import StoredRun

_MOST_NAMED = 4
_TOLD_ABOVE = {FindingKind.SIMULATED, FindingKind.SIMULATION_SPEED}
_ORDER = {Severity.INVALID: 0, Severity.SUSPECT: 1, Severity.NOTE: 2}
_STYLE = {Severity.INVALID: "bold red", Severity.SUSPECT: "yellow", Severity.NOTE: None}


def exit_code(stored: StoredRun) -> int:
    """0 when a comparison that was asked for has a VALID cell (UNDECIDED is an answer), else 4.

    A run that asks for no comparison (one arm alone) is answered by a VALID cell.
    """
    valid = [m for m in stored.measurements if m.status is CellStatus.VALID]
    if not _compares(stored) or is_study(stored.folder):
        return EXIT_ANSWERED if valid else EXIT_NO_VALID_CELL
    answered = any(
        (m.workload, m.load) == (c.workload, c.load) and m.arm in {c.arm, BASELINE}
        for c in stored.comparisons
        if c.speedup is not None
        for m in valid
    )
    return EXIT_ANSWERED if answered else EXIT_NO_VALID_CELL


def _compares(stored: StoredRun) -> bool:
    """Whether the plan has the baseline and another arm."""
    arms = {launch.arm for launch in stored.manifest.plan}
    return BASELINE in arms and len(arms) > 1


def print_answer(stored: StoredRun, *, as_json: bool) -> None:
    """Print a run's answer; of a part-run what there is so far, and how to go on."""
    if as_json:
        print_json(answer_json(stored))
        return
    printer = Printer()
    printer.print_text(f"{stored.run_id}: {stored.question}")
    if stored.simulated:
        accuracy = "" if stored.speed == 1 else " (for accuracy: --set sim.speed=1)"
        printer.print_text(
            f"SIMULATED at {stored.speed}× speed{accuracy}: "
            "the figures below come from a simulated server, not from hardware.",
            style="bold yellow",
        )
    for line in (*_faults(stored), *_missing(stored)):
        printer.print_text(line, style="bold yellow")
    comparisons = stored.comparisons if _compares(stored) else ()
    if comparisons:
        printer.print()
        printer.print_table(_comparison_table(comparisons))
        if any(c.break_even_accept_len_tok for c in comparisons):
            printer.print_text("Speculation pays where the accept length is above the break-even.")
    alone = _without_comparison(stored.measurements, comparisons)
    if alone:
        printer.print()
        printer.print_table(_cell_table(alone))
    printer.print()
    for line in (*_reasons(comparisons), *_undecided(comparisons)):
        printer.print_text(line)
    for severity, line in finding_lines(stored.findings, cell_names(stored)):
        printer.print_text(line, style=_STYLE[severity])
    _print_end(stored, printer)


def _print_end(stored: StoredRun, printer: Printer) -> None:
    """What the figures are no answer to, and where they lie."""
    if stored.published and exit_code(stored) == EXIT_NO_VALID_CELL:
        asked = (
            "comparison that was asked for has a VALID cell" if _compares(stored) else "VALID cell"
        )
        printer.print_text(
            f"No {asked}: these figures answer nothing yet (exit status {EXIT_NO_VALID_CELL}).",
            style="bold red",
        )
    if is_study(stored.folder):
        printer.print_text(
            f"These are the launches of a tuning study: `tuner show {stored.run_id}` has its "
            "answer."
        )
    printer.print_text(f"Results: {shown_path(stored.folder)}")


def _faults(stored: StoredRun) -> list[str]:
    faults = faults_of(stored.manifest)
    return [f"Faults on request: {faults}."] if faults else []


def _missing(stored: StoredRun) -> list[str]:
    """Which cells are not there, and what to do about it."""
    names = cell_names(stored)
    finished = {m.cell_id for m in stored.measurements}
    missing = [name for cell_id, name in names.items() if cell_id not in finished]
    if stored.published and not missing:
        return []
    count = f"{len(names) - len(missing)} of {many(len(names), 'cell')}"
    missed = f"; missing: {_some(missing)}" if missing else ""
    again = resume_command(stored.run_id, stored.folder.parent.parent)
    if stored.published:
        told = [f"Only {count} could be measured{missed}."]
        if can_retry(stored.manifest, stored.folder):
            told.append(f"`{again} --retry-failed` tries the failed launches again.")
        return told
    if stored.status is RunStatus.RUNNING:
        return [f"This run is being written: {count} finished so far{missed}."]
    rest = "measures the rest" if missing else "makes the answer"
    return [
        f"This run was not finished ({stored.status}): {count} stored{missed}.",
        f"`{again}` {rest}.",
    ]


def cell_names(stored: StoredRun) -> dict[str, str]:
    """`eagle3 chat load 8 pair 0` by cell_id, in the plan's order."""
    return {
        cell.cell_id: f"{launch.arm} {cell.workload} load {cell.load} pair {launch.pair}"
        for launch in stored.manifest.plan
        for cell in launch.cells
    }


def _some(names: Sequence[str]) -> str:
    more = len(names) - _MOST_NAMED
    return ", ".join(names[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")


# ------------------------------------------------------------------------------------- the tables


def _comparison_table(comparisons: Iterable[Comparison]) -> Table:
    table = plain_table(
        "workload",
        "load",
        "arm",
        "baseline\ntok/s",
        "arm\ntok/s",
        "speedup [95 %]",
        "accept\nlength",
        "break-even\naccept length",
        "cycle\nms",
        "baseline\nstep ms",
        "verdict",
        left=("workload", "arm", "verdict"),
    )
    for c in comparisons:
        table.add_row(
            c.workload,
            c.load,
            c.arm,
            _number(c.baseline_value, 1),
            _number(c.arm_value, 1),
            _speedup(c),
            _number(c.accept_len_tok, 2),
            _number(c.break_even_accept_len_tok, 2),
            _number(c.cycle_ms, 2),
            _number(c.baseline_step_ms, 2),
            _verdict(c),
        )
    return table


def _without_comparison(
    measurements: Iterable[Measurement], comparisons: Iterable[Comparison]
) -> list[Measurement]:
    """Cells that no speedup above stands for, those of one load together."""
    compared = {(c.workload, c.load) for c in comparisons if c.speedup is not None}
    alone = [m for m in measurements if (m.workload, m.load) not in compared]
    places = list(dict.fromkeys((m.workload, m.load, m.arm) for m in alone))
    return sorted(alone, key=lambda m: (places.index((m.workload, m.load, m.arm)), m.pair))


def _cell_table(measurements: Iterable[Measurement]) -> Table:
    table = plain_table(
        "workload",
        "load",
        "arm",
        "pair",
        "tok/s",
        "tok/s\nper user",
        "TTFT p50\nms",
        "TPOT p50\nms",
        "accept\nlength",
        "cycle\nms",
        "failed\nrequests",
        "status",
        left=("workload", "arm", "status"),
    )
    for m in measurements:
        table.add_row(
            m.workload,
            m.load,
            m.arm,
            str(m.pair),
            _number(m.output_tok_per_s, 1),
            _number(m.output_tok_per_s_per_user, 1),
            _number(m.ttft_ms.p50 if m.ttft_ms else None, 1),
            _number(m.tpot_ms.p50 if m.tpot_ms else None, 2),
            _number(m.accept_len_tok, 2),
            _number(m.cycle_ms, 2),
            f"{m.failed_ct}/{m.request_ct}",
            str(m.status),
        )
    return table


def _number(value: float | None, digits: int) -> str:
    return "–" if value is None else f"{value:.{digits}f}"


def _speedup(c: Comparison) -> str:
    if c.speedup is None:
        return "–"
    if c.ci95_low is None or c.ci95_high is None:
        return f"{c.speedup:.3f}"
    return f"{c.speedup:.3f} [{c.ci95_low:.3f}, {c.ci95_high:.3f}]"


def _verdict(c: Comparison) -> str:
    text = "no verdict" if c.verdict is None else str(c.verdict)
    marked = text if c.status is CellStatus.VALID else f"{text}, {c.status}"
    same = f", same server as {', '.join(c.same_server_as)}" if c.same_server_as else ""
    return marked + same


# ------------------------------------------------------------------------------ what weakens it


def _reasons(comparisons: Iterable[Comparison]) -> list[str]:
    """Why there is no verdict, reason by reason."""
    without: dict[str, list[str]] = {}
    for c in comparisons:
        if c.reason:
            without.setdefault(c.reason, []).append(_name(c))
    return [f"No verdict for {_some(names)}: {reason}." for reason, names in without.items()]


def _undecided(comparisons: Iterable[Comparison]) -> list[str]:
    """What would decide."""
    undecided = [c for c in comparisons if c.verdict is Verdict.UNDECIDED]
    told = [c for c in undecided if c.more_pairs_needed]
    lines = []
    if told:
        most = max(c.more_pairs_needed or 0 for c in told)
        each = _some([f"{_name(c)} (+{c.more_pairs_needed})" for c in told])
        lines.append(
            f"UNDECIDED for {each}: at the spread seen so many more pairs would decide; "
            f"run anew with --add-pairs {most}."
        )
    untold = [_name(c) for c in undecided if not c.more_pairs_needed]
    if untold:
        lines.append(f"UNDECIDED for {_some(untold)}: more pairs would hardly decide it.")
    return lines


def _name(c: Comparison) -> str:
    return f"{c.arm} {c.workload} load {c.load}"


def finding_lines(
    findings: Iterable[Finding], names: Mapping[str, str]
) -> list[tuple[Severity, str]]:
    """One entry a kind and severity, gravest first: where, what was found, the advice.

    Args:
        findings: Of cells and of the whole run.
        names: What to call a cell, by cell_id.
    """
    groups: dict[tuple[Severity, str], list[Finding]] = {}
    for finding in findings:
        if finding.kind not in _TOLD_ABOVE or finding.message.startswith("sim.speed "):
            groups.setdefault((finding.severity, finding.kind), []).append(finding)
    lines = []
    for (severity, kind), members in sorted(
        groups.items(), key=lambda group: (_ORDER[group[0][0]], group[0][1])
    ):
        first, *others = members
        where = _where([f.cell_id for f in members if f.cell_id], names) or _arm(first, ", ")
        message = first.message.replace("\n", "\n    ")
        lines.append((severity, f"{severity.upper()} {kind}{where}: {message}"))
        if first.cell_id is None:
            told = dict.fromkeys(
                f"    {_arm(f, '', ': ')}{f.message.splitlines()[0]}" for f in others
            )
            lines += [(severity, line) for line in told]
        lines += [(Severity.NOTE, f"    {line}") for line in first.advice.splitlines()]
    return lines


def _arm(finding: Finding, before: str, after: str = "") -> str:
    """The arm of a finding whose message does not name it."""
    named = finding.arm is None or finding.arm in finding.message
    return "" if named else f"{before}arm {finding.arm}{after}"


def _where(cell_ids: Sequence[str], names: Mapping[str, str]) -> str:
    distinct = list(dict.fromkeys(cell_ids))
    if not distinct:
        return ""
    example = names.get(distinct[0], distinct[0])
    return f", {example}" if len(distinct) == 1 else f" in {len(distinct)} cells, e.g. {example}"
