"""The sections of a run's page that say why: step costs, limits, latency, time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bench.model import CellStatus
from reports import plots
from reports.blocks import (
    Column,
    Drawing,
    Table,
    Value,
    figure_number,
    share,
    text,
    without_empty_columns,
)
from reports.expectation import expectations_of
from reports.plots.speed import MOST_BARS
from reports.timeline import cell_spans, has_gpu_readings, timeline_rows

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bench.store import StoredRun
    from reports.blocks import Block
    from reports.expectation import Expectations
    from reports.samples import RequestViews
    from reports.view import Place, Pooled

MOST_LATENCYPLACES = 4
_BREAK_EVEN = (
    "Speculation pays where a step accepts more tokens than it costs in steps of the baseline: "
    "the bar must pass the line."
)
_MARKED = "Coloured names: a cell of that arm is SUSPECT or INVALID."
_NO_LIMIT = (
    "Neither the limit nor the model's figure is shown: the scenario names no hardware card and "
    "no target card, or its loads are open loops. Name them (docs/scenario.md) to see both."
)
TONES = {CellStatus.VALID: "", CellStatus.SUSPECT: "warn", CellStatus.INVALID: "bad"}
PLACE = (
    Column(name="workload", label="workload", numeric=False),
    Column(name="load", label="load"),
    Column(name="arm", label="arm", numeric=False),
)


def where_cells(p: Pooled) -> tuple[Value, ...]:
    """The first three values of a row of `place_table`."""
    return (text(p.place.workload), text(p.place.load), text(p.arm, tone=TONES[p.status]))


def place_table(
    name: str, caption: str, columns: tuple[Column, ...], rows: Sequence[tuple[Value, ...]]
) -> Table:
    """A table with a row an arm at a place; empty columns are left out."""
    table = Table(name=name, caption=caption, columns=(*PLACE, *columns), rows=tuple(rows))
    return without_empty_columns(table, ("load", "arm"))


def _first_bars(drawn: Sequence[object]) -> str:
    """What a figure of bars leaves out."""
    more = len(drawn) - MOST_BARS
    return f" The first {MOST_BARS} of {len(drawn)}; the tables have all." if more > 0 else ""


def why_blocks(
    stored: StoredRun, cells: Sequence[Pooled], numbers: Mapping[str, int]
) -> list[Block]:
    """Accept length against break-even, the step's time, prefill and queue."""
    blocks: list[Block] = []
    figure = plots.draw_break_even(stored, numbers)
    if figure is not None:
        blocks += [
            _BREAK_EVEN,
            Drawing(
                name="break-even",
                title="Accept length against break-even",
                note="A red line: the accept length does not reach it."
                + _first_bars(stored.comparisons),
                figure=figure,
                wide=True,
            ),
        ]
    columns = (
        Column(name="accept_len_tok", label="accept length"),
        Column(name="cycle_ms", label="cycle ms"),
        Column(name="output_tok_per_s_per_user", label="tok/s a user"),
        Column(name="prefill_share", label="prefill"),
        Column(name="queue_share", label="queue"),
    )
    rows = [
        (
            *where_cells(p),
            figure_number(p.accept_len_tok, 2),
            figure_number(p.cycle_ms, 2),
            figure_number(p.output_tok_per_s_per_user, 1),
            share(p.prefill_share),
            share(p.queue_share),
        )
        for p in cells
    ]
    if rows:
        told = any(p.prefill_share is not None or p.queue_share is not None for p in cells)
        shares = "; prefill and queue as shares of end-to-end time" if told else ""
        caption = f"The cost of a step, and what a user gets{shares}. {_MARKED}"
        blocks.append(place_table("why", caption, columns, rows))
    if cells and all(p.queue_share is None and p.prefill_share is None for p in cells):
        blocks.append("The server told no times in queue and prefill, so neither share is known.")
    return blocks


def limit_blocks(
    stored: StoredRun, cells: Sequence[Pooled], numbers: Mapping[str, int]
) -> list[Block]:
    """Measured against what the model expects and what memory bandwidth allows."""
    if not cells:
        return []
    bounded = [p for p in cells if p.limit_tok_per_s is not None]
    if not bounded:
        return [_NO_LIMIT]
    told = expectations_of(stored, bounded)
    expectations = {} if isinstance(told, str) else told
    figure = plots.draw_limit(stored, cells, expectations, numbers)
    if figure is None:
        return ["No limit is drawn: none of its cells has a rate of tokens."]
    tick = " The tick is what the model of this hardware expects at the measured accept length."
    if any((p.arm, p.place) not in expectations for p in bounded):
        tick += (
            " It has none where the scenario does not have the arm, or no accept length is known."
        )
    drawing = Drawing(
        name="limit",
        title="Measured against the memory-bandwidth limit",
        note="The limit reads weights and KV cache once a step at the full bandwidth of the "
        "card, at the measured accept length; all else is free. No server passes it."
        + (tick if expectations else "")
        + _first_bars(bounded),
        figure=figure,
        wide=True,
    )
    absent = [f"The model's figure is absent: {told}."] if isinstance(told, str) else []
    return [drawing, *absent, _limit_table(bounded, expectations)]


def _limit_table(cells: Sequence[Pooled], expectations: Expectations) -> Table:
    columns = (
        Column(name="output_tok_per_s", label="measured tok/s"),
        Column(name="model_tok_per_s", label="model tok/s"),
        Column(name="limit_tok_per_s", label="limit tok/s"),
        Column(name="model_share", label="measured / model"),
        Column(name="limit_share", label="measured / limit"),
    )
    rows = [
        (
            *where_cells(p),
            figure_number(p.output_tok_per_s, 1),
            figure_number(model := expectations.get((p.arm, p.place)), 1),
            figure_number(p.limit_tok_per_s, 1),
            share(_share_of(p.output_tok_per_s, model)),
            share(_share_of(p.output_tok_per_s, p.limit_tok_per_s)),
        )
        for p in cells
    ]
    return place_table("limit", "Measured, expected by the model, and the limit", columns, rows)


def _share_of(part: float | None, whole: float | None) -> float | None:
    return None if part is None or not whole else part / whole


def tradeoff_blocks(
    stored: StoredRun, cells: Sequence[Pooled], numbers: Mapping[str, int]
) -> list[Block]:
    """Throughput a GPU against speed for a user."""
    figure = plots.draw_pareto(stored, cells, numbers)
    if figure is None:
        return []
    return [
        Drawing(
            name="tradeoff",
            title="Throughput against a user's speed",
            note="Each mark is a load. An arm that lies above and to the right is better at both.",
            figure=figure,
            wide=len({p.place.workload for p in cells}) > 1,
        )
    ]


def latency_blocks(
    stored: StoredRun, views: RequestViews, numbers: Mapping[str, int]
) -> list[Block]:
    """Distributions at up to four places, and percentiles of every cell."""
    if not stored.measurements:
        return []
    blocks: list[Block] = []
    places = list(dict.fromkeys(place for _, place in views.latencies))
    shown = _spread(places, MOST_LATENCYPLACES)
    for place_no, place in enumerate(shown):
        latencies = {
            arm: views.latencies[arm, place] for arm in numbers if (arm, place) in views.latencies
        }
        figure = plots.draw_latencies(latencies, numbers, simulated=stored.simulated)
        if figure is not None:
            blocks.append(
                Drawing(
                    name=f"latency-{place_no + 1}",
                    title=f"{place.workload}, load {place.load}",
                    note="Share of requests (of gaps between events) up to so many milliseconds.",
                    figure=figure,
                    wide=True,
                )
            )
    if len(places) > len(shown):
        blocks.append(f"Drawn at {len(shown)} of {len(places)} places; the table has them all.")
    if not places and stored.published:
        blocks.append(
            "Distributions are missing: no request ended well, or samples.parquet is gone."
        )
    if not places and not stored.published:
        blocks.append("Distributions are drawn once the run is published (`bench resume`).")
    return blocks


def _spread(places: Sequence[Place], most: int) -> list[Place]:
    """At most so many, evenly over the order, the first and the last among them."""
    if len(places) <= most:
        return list(places)
    return [places[round(k * (len(places) - 1) / (most - 1))] for k in range(most)]


def timeline_blocks(
    stored: StoredRun, views: RequestViews, numbers: Mapping[str, int]
) -> list[Block]:
    """What server and GPUs did over time."""
    rows = timeline_rows(stored, views.acceptance)
    figure = plots.draw_timeline(rows, cell_spans(stored), numbers, simulated=stored.simulated)
    if figure is None:
        return ["There is no timeline: no telemetry was stored."] if stored.measurements else []
    read = has_gpu_readings(stored)
    blocks: list[Block] = [
        Drawing(
            name="timeline",
            title="What server and GPUs did" if read else "What the server did",
            note="Grey: the windows of every other cell; dotted lines: another launch.",
            figure=figure,
            wide=True,
        )
    ]
    if not read:
        blocks.append(f"Power, clocks and temperature are missing: {_no_gpu(stored)}.")
    return blocks


def _no_gpu(stored: StoredRun) -> str:
    if stored.simulated:
        return "a simulated server has no GPU"
    told = [f.message for f in stored.findings if "gpu" in f.kind or "telemetry" in f.kind]
    return told[0].rstrip(".") if told else "no GPU was read on this machine during the run"


def energy_blocks(stored: StoredRun, cells: Sequence[Pooled]) -> list[Block]:
    """Joules a token."""
    rows = [
        (
            *where_cells(p),
            figure_number(p.energy_j_per_output_tok, 3),
            share(min((m.energy_coverage or 0.0) for m in p.cells)),
        )
        for p in cells
        if p.energy_j_per_output_tok is not None
    ]
    if not rows:
        return [f"No energy is told: {_no_gpu(stored)}."] if cells else []
    columns = (
        Column(name="energy_j_per_output_tok", label="J a token"),
        Column(name="energy_coverage", label="of the window"),
    )
    return [place_table("energy", "GPU energy a generated token", columns, rows)]
