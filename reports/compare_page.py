"""The page of two runs: what became faster or slower, by which factor, and what else changed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bench.errors import InputError
from bench.metrics.between_runs import change_between
from bench.model import BASELINE, CellStatus, Verdict
from reports import plots
from reports.blocks import (
    Column,
    Drawing,
    Page,
    Section,
    Table,
    Value,
    figure_number,
    text,
    without_empty_columns,
)
from reports.differences import asked_differences, environment_differences
from reports.view import Place, arms_of, load_phrase, places_of
from reports.wording import interval, number

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.metrics.between_runs import Change
    from bench.model import Measurement
    from bench.store import StoredRun
    from reports.blocks import Block

MOST_NAMED = 12
_TONES = {Verdict.FASTER: "good", Verdict.SLOWER: "bad"}


def changes_of(a: StoredRun, b: StoredRun) -> tuple[Change, ...]:
    """Every arm at every place of either run, in the order of the second.

    Raises:
        InputError: The runs did not do the same work: what differs is named.
    """
    differing = asked_differences(a, b)
    if differing:
        shown = "".join(f"\n  {key}: {x} | {y}" for key, x, y in differing[:MOST_NAMED])
        more = len(differing) - MOST_NAMED
        raise InputError(
            f"{a.run_id} and {b.run_id} cannot be compared: they were not asked the same."
            f"{shown}" + (f"\n  and {more} more" if more > 0 else ""),
            hint="Compare runs of one scenario: only arms, pairs and the environment may differ.",
        )
    places = dict.fromkeys((*places_of(b), *places_of(a)))
    arms = dict.fromkeys((*arms_of(b), *arms_of(a)))
    return tuple(
        change_between(before, after)
        for place in places
        for arm in arms
        for before, after in [(_cells(a, arm, place), _cells(b, arm, place))]
        if before or after
    )


def compare_page(a: StoredRun, b: StoredRun) -> Page:
    """The page of two runs of the same work, the first being the older.

    Raises:
        InputError: They did not do the same work.
    """
    changes = changes_of(a, b)
    environment = environment_differences(a, b)
    arms = dict.fromkeys(change.arm for change in changes)
    start = 0 if BASELINE in arms else 1
    numbers = {arm: number for number, arm in enumerate(arms, start=start)}
    return Page(
        kind="comparison",
        title=f"{b.manifest.scenario}: {b.run_id} against {a.run_id}",
        subtitle=b.question,
        answer=tuple(_answer(changes)),
        warnings=tuple(f"{run.run_id} is not finished." for run in (a, b) if not run.published),
        series=tuple(numbers.items()),
        sections=(
            Section(anchor="changes", title="What changed", blocks=_changes(changes, numbers, b)),
            Section(anchor="why", title="Which factor moved", blocks=_factors(changes)),
            Section(
                anchor="environment",
                title="What else changed",
                blocks=(_environment(environment),)
                if environment
                else (
                    "Nothing that was recorded: machine, software and resolved settings agree.",
                ),
            ),
            Section(anchor="speedups", title="Speedup in each run", blocks=(_speedups(a, b),)),
        ),
        simulated=a.simulated or b.simulated,
    )


def _cells(stored: StoredRun, arm: str, place: Place) -> list[Measurement]:
    return [
        m
        for m in stored.measurements
        if m.arm == arm and Place(workload=m.workload, load=m.load) == place
    ]


def _answer(changes: Sequence[Change]) -> list[str]:
    decided = [c for c in changes if c.verdict in {Verdict.FASTER, Verdict.SLOWER}]
    if decided:
        return [_sentence(c) for c in decided[:6]] + (
            [f"{len(decided) - 6} more changes are in the table."] if len(decided) > 6 else []
        )
    if any(c.verdict is not None for c in changes):
        return [_unchanged(changes)]
    reasons = "; ".join(dict.fromkeys(c.reason for c in changes if c.reason))
    return [f"There is no verdict: {reasons}."]


def _unchanged(changes: Sequence[Change]) -> str:
    """How many cells are the same or undecided, and how far apart the runs lie at most."""
    counts = {
        "the same": sum(c.verdict is Verdict.SAME for c in changes),
        "undecided": sum(c.verdict is Verdict.UNDECIDED for c in changes),
        "without a verdict": sum(c.verdict is None for c in changes),
    }
    told = [f"{count} {words}" for words, count in counts.items() if count]
    ratios = [c.ratio for c in changes if c.ratio is not None]
    span = f"after / before is {min(ratios):.3f} to {max(ratios):.3f}"
    if len(told) == 1 and counts["the same"]:
        return f"Nothing changed: all {len(changes)} cells are the same; {span}."
    cells = f"{len(changes)} cell{'s' if len(changes) != 1 else ''}"
    return f"No change can be told: of {cells} {', '.join(told)}; {span}."


def _sentence(c: Change) -> str:
    assert c.ratio is not None
    way = "faster" if c.ratio > 1 else "slower"
    shown = f"{100 * abs(c.ratio - 1):.1f} % {way}{interval(c.ci95_low, c.ci95_high, 3)}"
    return f"{c.arm} in {c.workload} {load_phrase(c.load)} became {shown}: {_cause(c)}."


def _cause(c: Change) -> str:
    """The factor with the largest share, if it makes up most of the change."""
    shares = {
        "acceptance": c.ln_accept_len,
        "the step's time": c.ln_cycle,
        "what is not decoding (prefill, queue, idle slots)": c.ln_residual,
    }
    told = {name: share for name, share in shares.items() if share is not None}
    if not told:
        return "the factors were not measured"
    name = max(told, key=lambda key: abs(told[key]))
    total = sum(abs(share) for share in told.values())
    if abs(told[name]) < 0.6 * total:
        return "several factors moved"
    return f"mostly {name}"


def _changes(
    changes: Sequence[Change], numbers: dict[str, int], b: StoredRun
) -> tuple[Block, ...]:
    figure = plots.draw_changes(changes, numbers, simulated=b.simulated)
    table = Table(
        name="changes",
        caption="Output tok/s of each arm in both runs",
        columns=(
            Column(name="workload", label="workload", numeric=False),
            Column(name="load", label="load"),
            Column(name="arm", label="arm", numeric=False),
            Column(name="before_tok_per_s", label="before"),
            Column(name="after_tok_per_s", label="after"),
            Column(name="ratio", label="after / before [95 %]"),
            Column(name="launches", label="launches", numeric=False),
            Column(name="verdict", label="verdict", numeric=False),
            Column(name="reason", label="why not", numeric=False),
        ),
        rows=tuple(_change_row(c) for c in changes),
    )
    kept = ("load", "arm", "ratio", "launches", "verdict")
    shown = without_empty_columns(table, kept)
    if figure is None:
        return (shown,)
    note = (
        "Bars are 95 % intervals (Welch) over the launches of both runs."
        if any(c.ci95_low is not None for c in changes)
        else "There are no intervals: these take several launches in each run."
    )
    drawing = Drawing(name="changes", title="After / before", note=note, figure=figure, wide=True)
    return (drawing, shown)


def _change_row(c: Change) -> tuple[Value, ...]:
    shown = number(c.ratio, 3) + interval(c.ci95_low, c.ci95_high, 3)
    verdict = "no verdict" if c.verdict is None else str(c.verdict)
    return (
        text(c.workload),
        text(c.load),
        text(c.arm),
        figure_number(c.before_tok_per_s, 1),
        figure_number(c.after_tok_per_s, 1),
        Value(text=shown, raw=c.ratio),
        text(f"{c.launches[0]} / {c.launches[1]}"),
        text(verdict, tone=_TONES.get(c.verdict, "") if c.verdict else ""),
        text(c.reason),
    )


def _factors(changes: Sequence[Change]) -> tuple[Block, ...]:
    def percent(value: float | None) -> Value:
        shown = "–" if value is None else f"{round(100 * value, 1) + 0.0:+.1f} %".replace("-", "−")
        return Value(text=shown, raw=value)

    table = Table(
        name="factors",
        caption="ln(after / before) as a sum; the baseline has no acceptance",
        columns=(
            Column(name="workload", label="workload", numeric=False),
            Column(name="load", label="load"),
            Column(name="arm", label="arm", numeric=False),
            Column(name="ln_accept_len", label="accept length"),
            Column(name="ln_cycle", label="step's time"),
            Column(name="ln_residual", label="the rest"),
        ),
        rows=tuple(
            (
                text(c.workload),
                text(c.load),
                text(c.arm),
                percent(c.ln_accept_len),
                percent(c.ln_cycle),
                percent(c.ln_residual),
            )
            for c in changes
            if c.ratio is not None
        ),
    )
    if not table.rows:
        return ("Nothing can be attributed: no cell was measured in both runs.",)
    words = (
        "Read the baseline's row first: what moved it too is the machine or the engine, not "
        "speculation. Acceptance alone: the draft, the template or the prompts. The step's time "
        "alone: kernels, communication or the captured graphs."
    )
    return (words, without_empty_columns(table, ("load", "arm")))


def _environment(rows: Sequence[tuple[str, str, str]]) -> Table:
    return Table(
        name="environment",
        caption="Recorded facts that differ",
        columns=(
            Column(name="fact", label="fact", numeric=False),
            Column(name="before", label="before", numeric=False),
            Column(name="after", label="after", numeric=False),
        ),
        rows=tuple((text(key), text(x), text(y)) for key, x, y in rows),
    )


def _speedups(a: StoredRun, b: StoredRun) -> Block:
    found = {(c.workload, c.load, c.arm): c for c in a.comparisons}
    rows = [
        (
            text(c.workload),
            text(c.load),
            text(c.arm),
            *(
                Value(
                    text=number(x.speedup, 3) + interval(x.ci95_low, x.ci95_high, 3),
                    raw=x.speedup,
                    tone="" if x.status is CellStatus.VALID else "warn",
                )
                for x in (before, c)
            ),
        )
        for c in b.comparisons
        for before in [found.get((c.workload, c.load, c.arm))]
        if before is not None
    ]
    if not rows:
        return "No arm was compared with the baseline in both runs."
    table = Table(
        name="speedups",
        caption="Speedup over each run's own baseline",
        columns=(
            Column(name="workload", label="workload", numeric=False),
            Column(name="load", label="load"),
            Column(name="arm", label="arm", numeric=False),
            Column(name="before", label="before"),
            Column(name="after", label="after"),
        ),
        rows=tuple(rows),
    )
    return without_empty_columns(table, ("load", "arm"))
