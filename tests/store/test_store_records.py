"""Whatever is stored is read back as it was."""

import io
import typing
from dataclasses import fields, replace

import pyarrow.parquet as pq
import pytest
import store_examples as ex
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.errors import StoreError
from bench.model import ClientStats, Distribution, Measurement, RequestSample, TelemetryPoint
from bench.store.parquet import write_table
from bench.store.records import (
    deltas,
    measurements_of,
    measurements_table,
    samples_of,
    samples_table,
    telemetry_of,
    telemetry_table,
    undo_deltas,
)

QUICK = settings(deadline=None, max_examples=40)
WHOLE = st.integers(0, 2**62 - 1)
REAL = st.floats(allow_nan=False, allow_infinity=False)
TEXT = st.text(st.characters(codec="utf-8"), max_size=20)
COUNTS = st.lists(WHOLE, max_size=5).map(tuple)


def records(kind, **special):
    """Records of a kind with anything that the types of its fields allow."""
    hints = typing.get_type_hints(kind)
    given_types = {
        int: WHOLE,
        float: REAL,
        str: TEXT,
        tuple[int, ...]: COUNTS,
        bool: st.booleans(),
    }

    def values(hint):
        if hint in given_types:
            return given_types[hint]
        if type(None) in (options := typing.get_args(hint)):
            return st.one_of(
                st.none(), *(values(option) for option in options if option is not type(None))
            )
        if hint in {Distribution, ClientStats}:
            return records(hint)
        if hint == tuple[float, ...]:
            return st.lists(REAL, max_size=5).map(tuple)
        if hint == tuple[tuple[str, int], ...]:
            return st.dictionaries(TEXT, WHOLE, max_size=3).map(lambda pairs: tuple(pairs.items()))
        return st.from_type(hint)

    made = {field.name: values(hints[field.name]) for field in fields(kind)}
    return st.builds(kind, **(made | special))


def through_parquet(name, table):
    file = io.BytesIO()
    write_table(name, table, file)
    return pq.read_table(file)


@QUICK
@given(st.lists(records(RequestSample), max_size=4))
def test_samples_come_back_as_they_were(samples):
    assert samples_of(through_parquet("samples", samples_table(samples))) == samples


@QUICK
@given(st.lists(records(TelemetryPoint), max_size=4))
def test_telemetry_comes_back_as_it_was(points):
    table = telemetry_table(points, launch_id="L", cell_id="c")
    assert telemetry_of(through_parquet("telemetry", table)) == points
    assert set(table["launch_id"].to_pylist()) <= {"L"}


@QUICK
@given(st.lists(records(Measurement), max_size=3))
def test_measurements_come_back_as_they_were(measurements):
    table = through_parquet("measurements", measurements_table(measurements))
    assert measurements_of(table) == measurements


@given(st.lists(WHOLE), WHOLE)
@QUICK
def test_deltas_are_undone(values, start):
    assert undo_deltas(deltas(values, start=start), start=start) == values


def test_event_lists_are_stored_as_differences():
    sample, *_, never_sent = ex.samples(ex.cell(0))
    never_sent = replace(never_sent, event_ns=(7, 9), event_tok=None)
    table = samples_table([sample, never_sent])
    assert table["event_ns_delta"].to_pylist() == [[990, 4000, 4000], [7, 2]]
    assert table["event_tok_delta"].to_pylist() == [[1, 2, 3], None]


def test_numbers_that_are_not_finite_become_missing():
    cell = ex.cell(0)
    nan, inf = float("nan"), float("inf")
    broken = replace(
        ex.measurement(cell, "L"),
        cycle_ms=nan,
        limit_share=inf,
        accept_at_position=None,
        ttft_ms=Distribution(mean=nan, p50=1.0, p90=1.0, p95=1.0, p99=1.0, n=1),
        client=ClientStats(
            send_late_p50_ms=nan,
            send_late_p99_ms=1.0,
            loop_lag_p99_ms=None,
            cpu_share=inf,
            events_per_s=0.0,
            max_in_flight=1,
        ),
    )
    (read,) = measurements_of(measurements_table([broken]))
    assert (read.cycle_ms, read.limit_share, read.ttft_ms) == (None, None, None)
    assert read.client == replace(broken.client, send_late_p50_ms=None, cpu_share=None)
    (point,) = telemetry_of(
        telemetry_table([replace(ex.telemetry(cell)[0], value=nan)], launch_id="L", cell_id="c")
    )
    assert point.value is None


def test_half_a_surrogate_pair_does_not_lose_the_cell():
    sample = replace(ex.samples(ex.cell(0))[0], text="half \ud83d of µ", error_message="\udcff")
    (read,) = samples_of(samples_table([sample]))
    assert read == replace(sample, text="half ? of µ", error_message="?")


def test_rows_that_are_no_records_are_told():
    table = samples_table(ex.samples(ex.cell(0)))
    status = table.schema.get_field_index("status")
    wrong = table.set_column(status, table.schema.field("status"), [["sleepy"] * table.num_rows])
    with pytest.raises(StoreError, match=r"not RequestSample.*status"):
        samples_of(wrong)
