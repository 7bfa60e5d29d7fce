"""Plans and lists of runs, as tables for people or as JSON."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from rich.table import Table

from bench.cli.output import Printer, duration, many, print_json, shown_path
from bench.model import Severity
from bench.plan import estimate, fit_budget
from bench.plan.budget import told

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from bench.model import Plan
    from bench.plan import Fit, PlanEstimate
    from bench.store import RunSummary


def plain_table(*headings: str, left: Sequence[str]) -> Table:
    """A table without lines; columns not in `left` hold numbers."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in headings:
        table.add_column(
            heading, justify="left" if heading in left else "right", no_wrap=True, vertical="top"
        )
    return table


# ---------------------------------------------------------------------------------------- the plan


def print_plan(
    plan: Plan, *, told_by: str | None = None, budget_s: float | None = None, as_json: bool
) -> None:
    """Cells, launches, hours and GPU-hours; what `--dry-run` is for.

    Args:
        plan: What to print.
        told_by: Who answers for the servers' arguments, in a sentence; None: nobody needs to.
        budget_s: `--budget`, in seconds of the world.
        as_json: Whether as JSON.
    """
    from bench.cli.answer import finding_lines

    fit = None if budget_s is None else fit_budget(plan.launches, budget_s)
    if as_json:
        told = {} if told_by is None else {"arguments_told_by": told_by}
        print_json(_plan_json(plan, estimate(plan)) | _fit_json(fit, budget_s) | told)
        return
    printer = Printer()
    printer.print_text(f"{plan.scenario}: {plan.question}")
    if plan.simulated:
        printer.print_text(f"SIMULATED at {plan.speed}× speed.", style="bold yellow")
    if fit is not None and budget_s is not None:
        for line in _fit_lines(plan, fit, budget_s):
            printer.print_text(line, style="bold yellow" if fit.dropped else None)
    printer.print()
    printer.print_table(_cells_table(plan))
    printer.print()
    printer.print_table(_launches_table(plan, fit))
    printer.print()
    made = plan if fit is None else replace(plan, launches=fit.kept)
    if made.launches:
        cost = estimate(made)
        gpu_hours = "" if plan.simulated or not plan.gpus else f", {cost.gpu_hours:.1f} GPU-hours"
        printer.print_text(f"{work_in(made)}: about {duration(cost.hours * 3600)}{gpu_hours}.")

    if told_by is not None:
        printer.print_text(told_by)
    for severity, line in finding_lines(plan.findings, {}):
        printer.print_text(line, style="yellow" if severity is Severity.SUSPECT else None)


def work_in(plan: Plan) -> str:
    """`8 cells in 4 launches`; of servers that run already `8 cells on 2 running servers`."""
    cells = many(sum(len(launch.cells) for launch in plan.launches), "cell")
    if is_attached(plan):
        urls = {launch.server.url for launch in plan.launches}
        return f"{cells} on {many(len(urls), 'running server')}"
    return f"{cells} in {many(len(plan.launches), 'launch')}"


def is_attached(plan: Plan) -> bool:
    """Whether what is measured are servers that run already: nothing is launched."""
    return all(launch.server.launcher == "attached" for launch in plan.launches)


def _fit_lines(plan: Plan, fit: Fit, budget_s: float) -> list[str]:
    """What of a plan is measured within a budget, and what is not."""
    time, all_cells = duration(budget_s), sum(len(launch.cells) for launch in plan.launches)
    if not fit.kept:
        return [f"Budget {time}: nothing fits, not even one load of two arms."]
    if not fit.dropped:
        return [f"Budget {time}: all of it fits, about {duration(fit.needed_s)}."]
    cells = sum(len(launch.cells) for launch in fit.kept)
    launches = f"{len(fit.kept)} of {many(len(plan.launches), 'launch')}"
    needed = duration(fit.needed_s)
    return [
        f"Budget {time}: {cells} of {all_cells} cells fit, in {launches}, about {needed}.",
        f"Dropped, later pairs first, then loads in the middle: {told(fit.dropped)}.",
    ]


def _fit_json(fit: Fit | None, budget_s: float | None) -> dict[str, Any]:
    if fit is None:
        return {}
    return {
        "budget": {
            "hours": (budget_s or 0) / 3600,
            "fits": bool(fit.kept),
            "needed_hours": fit.needed_s / 3600,
            "dropped_cells": [cell.cell_id for cell in fit.dropped],
        }
    }


def _cells_table(plan: Plan) -> Table:
    """What is asked of every arm, in every pair."""
    table = plain_table("workload", "load", "requests", "warm-up", left=("workload",))
    rows = dict.fromkeys(
        (c.workload.name, c.load.label, str(c.requests), str(c.warmup_requests))
        for launch in plan.launches
        for c in launch.cells
    )
    for row in rows:
        table.add_row(*row)
    return table


def _launches_table(plan: Plan, fit: Fit | None) -> Table:
    """What is started when; with a budget, what of it is dropped."""
    what = "turn" if is_attached(plan) else "launch"
    table = plain_table(what, "arm", "pair", "cells", "estimated", left=("arm",))
    kept = None if fit is None else {launch.ordinal: launch for launch in fit.kept}
    for launch in plan.launches:
        made = launch if kept is None else kept.get(launch.ordinal)
        cells, planned = 0 if made is None else len(made.cells), len(launch.cells)
        table.add_row(
            str(launch.ordinal + 1),
            launch.arm,
            str(launch.pair),
            str(cells) if cells == planned else f"{cells} of {planned}" if made else "dropped",
            duration((made or launch).estimated_s),
        )
    return table


def _plan_json(plan: Plan, cost: PlanEstimate) -> dict[str, Any]:
    launches = [
        {
            "ordinal": launch.ordinal,
            "arm": launch.arm,
            "pair": launch.pair,
            "server_key": launch.server_key,
            "arguments": list(launch.server.arguments),
            "estimated_s": launch.estimated_s,
            "cells": [
                {
                    "cell_id": cell.cell_id,
                    "workload": cell.workload.name,
                    "load": cell.load.label,
                    "requests": cell.requests,
                    "warmup_requests": cell.warmup_requests,
                }
                for cell in launch.cells
            ],
        }
        for launch in plan.launches
    ]
    return {
        "scenario": plan.scenario,
        "question": plan.question,
        "simulated": plan.simulated,
        "speed": plan.speed,
        "pairs": plan.pairs,
        "cells": cost.cells,
        "hours": cost.hours,
        "gpu_hours": cost.gpu_hours,
        "launches": launches,
        "findings": [
            {"kind": f.kind, "arm": f.arm, "message": f.message, "advice": f.advice}
            for f in plan.findings
        ],
    }


# ----------------------------------------------------------------------------------- lists of runs


def _status_shown(run: RunSummary) -> str:
    """A run that is over though cells of it are missing is not shown as complete."""
    lacks_cells = run.cells_total is not None and run.cells_finished != run.cells_total
    return "in part" if run.published and lacks_cells else run.status


def print_runs(runs: Sequence[RunSummary], *, out: Path, as_json: bool) -> None:
    """A line a run, newest last."""
    if as_json:
        print_json({"runs": [{**asdict(run), "folder": str(run.folder)} for run in runs]})
        return
    printer = Printer()
    if not runs:
        printer.print_text(
            f"no runs in {shown_path(out)}; `bench run scenarios/quick.yaml --sim` makes one in "
            "seconds."
        )
        return
    table = plain_table(
        "run",
        "scenario",
        "status",
        "cells",
        "simulated",
        "note",
        left=("run", "scenario", "status", "simulated", "note"),
    )
    for run in runs:
        table.add_row(
            run.run_id,
            run.scenario or "–",
            _status_shown(run),
            f"{run.cells_finished}/{run.cells_total}" if run.cells_total is not None else "–",
            "SIMULATED" if run.simulated else "no" if run.simulated is not None else "–",
            run.note or "",
        )
    printer.print_table(table)
