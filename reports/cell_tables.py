"""Tables of a run's page with a row a cell: what failed, and the numbers that people quote."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reports.blocks import Column, Table, Value, figure_number, text, without_empty_columns
from reports.run_sections import PLACE, TONES
from reports.wording import number

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.model import Distribution, Measurement
    from bench.store import StoredRun
    from reports.blocks import Block


def failure_blocks(stored: StoredRun) -> list[Block]:
    """Failed requests by kind, cell by cell; that there were none is said too."""
    failed = [m for m in stored.measurements if m.failed_ct]
    total = sum(m.request_ct for m in stored.measurements)
    if not failed:
        return [f"None of {total:,} requests failed."] if stored.measurements else []
    rows = [
        (
            text(m.workload),
            text(m.load),
            text(m.arm),
            figure_number(m.pair, 0),
            text(kind),
            figure_number(count, 0),
            figure_number(m.request_ct, 0),
        )
        for m in failed
        for kind, count in m.failures_by_kind
    ]
    columns = (
        Column(name="pair", label="pair"),
        Column(name="kind", label="kind", numeric=False),
        Column(name="failed_ct", label="failed"),
        Column(name="request_ct", label="of requests"),
    )
    every = sum(m.failed_ct for m in failed)
    caption = f"{every:,} of {total:,} requests failed"
    table = Table(name="failures", caption=caption, columns=(*PLACE, *columns), rows=tuple(rows))
    return [table]


def cell_table(measurements: Sequence[Measurement]) -> Table | None:
    """A row a cell with the numbers that people quote."""
    if not measurements:
        return None
    columns = (
        Column(name="pair", label="pair"),
        Column(name="output_tok_per_s", label="tok/s"),
        Column(name="output_tok_per_s_per_user", label="tok/s a user"),
        Column(name="ttft_ms_p50", label="TTFT p50 ms"),
        Column(name="ttft_ms_p99", label="TTFT p99 ms"),
        Column(name="tpot_ms_p50", label="TPOT p50 ms"),
        Column(name="tpot_ms_p99", label="TPOT p99 ms"),
        Column(name="chunk_gap_ms_p99", label="gap p99 ms"),
        Column(name="accept_len_tok", label="accept length"),
        Column(name="cycle_ms", label="cycle ms"),
        Column(name="goodput_request_per_s", label="goodput req/s"),
        Column(name="failed_ct", label="failed"),
        Column(name="request_ct", label="requests"),
        Column(name="window_s", label="window s"),
        Column(name="status", label="status", numeric=False),
    )
    rows = tuple(_cell_row(m) for m in measurements)
    table = Table(
        name="cells",
        caption="A row a cell, in the order measured",
        columns=(*PLACE, *columns),
        rows=rows,
    )
    return without_empty_columns(table, ("load", "arm", "output_tok_per_s", "status"))


def _cell_row(m: Measurement) -> tuple[Value, ...]:
    return (
        text(m.workload),
        text(m.load),
        text(m.arm),
        figure_number(m.pair, 0),
        figure_number(m.output_tok_per_s, 1),
        figure_number(m.output_tok_per_s_per_user, 1),
        figure_number(_at(m.ttft_ms, "p50"), 1),
        figure_number(_at(m.ttft_ms, "p99"), 1),
        figure_number(_at(m.tpot_ms, "p50"), 2),
        figure_number(_at(m.tpot_ms, "p99"), 2),
        figure_number(_at(m.chunk_gap_ms, "p99"), 1),
        figure_number(m.accept_len_tok, 2),
        figure_number(m.cycle_ms, 2),
        figure_number(m.goodput_request_per_s, 2),
        Value(text=number(m.failed_ct, 0), raw=m.failed_ct, tone="bad" if m.failed_ct else ""),
        figure_number(m.request_ct, 0),
        figure_number(m.window_s, 1),
        text(m.status, tone=TONES[m.status]),
    )


def _at(distribution: Distribution | None, percentile: str) -> float | None:
    return None if distribution is None else float(getattr(distribution, percentile))
