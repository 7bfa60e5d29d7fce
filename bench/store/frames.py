"""Published runs as pandas DataFrames.

Integers that may be missing are pandas' nullable `Int64`, booleans `boolean`: a missing count
never turns a timestamp into a float. Missing floats are NaN, as pandas has it; missing text is NaN
of its string type.
"""

from __future__ import annotations

from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa

from bench.errors import StoreError
from bench.store.answer import comparison_row
from bench.store.columns import (
    CELL_KEYS,
    COMPARISONS,
    ENGINE,
    FINDINGS,
    IDENTITY,
    MEASUREMENTS,
    RUNS,
    SAMPLES,
    TELEMETRY,
)
from bench.store.layout import is_partial, is_run, run_folders
from bench.store.manifest import planned_cell_ids
from bench.store.reader import load_run, stored_table
from bench.store.records import measurements_table
from bench.store.schema import arrow_schema
from bench.store.upgrade import NewerSchemaError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import pandas as pd

    from bench.store.columns import Column
    from bench.store.reader import StoredRun


class Results:
    """The published runs of a results folder; columns: docs/results.md.

    Tables are read when they are first asked for.

    Attributes:
        stored: The runs as records, oldest first.
        damaged: Runs that could not be read, with the reason: they are in no table.
    """

    def __init__(self, stored: tuple[StoredRun, ...], damaged: Mapping[Path, str]) -> None:
        self.stored = stored
        self.damaged = dict(damaged)

    @cached_property
    def runs(self) -> pd.DataFrame:
        """A row a run."""
        rows = [_run_row(run) for run in self.stored]
        return _frame(_plain_table((*IDENTITY, *ENGINE, *RUNS), rows))

    @cached_property
    def measurements(self) -> pd.DataFrame:
        """A row a cell; distributions are columns like `ttft_ms_p50`, as is `client_cpu_share`."""
        own = tuple(column for column in MEASUREMENTS if column.name != "simulated")
        tables = (
            _with_run(run, _with_engine(run, measurements_table(run.measurements)))
            for run in self.stored
        )
        flat = _concat((*IDENTITY, *ENGINE, *own), tables).flatten()
        return _frame(flat.rename_columns([name.replace(".", "_") for name in flat.column_names]))

    @cached_property
    def comparisons(self) -> pd.DataFrame:
        """A row a comparison of an arm with the baseline."""
        tables = (
            _with_run(run, _plain_table(COMPARISONS, [comparison_row(c) for c in run.comparisons]))
            for run in self.stored
        )
        return _frame(_concat((*IDENTITY, *COMPARISONS), tables))

    @cached_property
    def findings(self) -> pd.DataFrame:
        """A row a finding."""
        tables = (
            _with_run(run, _plain_table(FINDINGS, [msgspec.to_builtins(f) for f in run.findings]))
            for run in self.stored
        )
        return _frame(_concat((*IDENTITY, *FINDINGS), tables))

    def samples(self, run_id: str | None = None) -> pd.DataFrame:
        """A row a request.

        Args:
            run_id: Of one run only; None: of all.

        Raises:
            StoreError: There is no such run, or its file is damaged.
        """
        return self._rows("samples", SAMPLES, run_id)

    def telemetry(self, run_id: str | None = None) -> pd.DataFrame:
        """A row a reading.

        Args:
            run_id: Of one run only; None: of all.

        Raises:
            StoreError: There is no such run, or its file is damaged.
        """
        return self._rows("telemetry", TELEMETRY, run_id)

    def _rows(self, name: str, columns: tuple[Column, ...], run_id: str | None) -> pd.DataFrame:
        chosen = [run for run in self.stored if run_id in {None, run.manifest.run_id}]
        if run_id is not None and not chosen:
            raise StoreError(f"no published run {run_id!r} among these {len(self.stored)}")
        own = tuple(column for column in columns if column.name != "launch_id")  # a cell key here
        tables = (
            _with_run(
                run,
                _with_engine(run, _with_cell(run, stored_table(run.folder, run.manifest, name))),
            )
            for run in chosen
        )
        return _frame(_concat((*IDENTITY, *ENGINE, *CELL_KEYS, *own), tables))


def open_results(path: str | Path) -> Results:
    """Open every published run at or below a folder.

    Args:
        path: A results folder, a scenario's folder in it, or one run's folder.

    Raises:
        StoreError: The folder does not exist, a run in it was written by a newer specdyno, or
            `path` is one run and that is damaged or not published.
    """
    path = Path(path)
    if is_run(path) and path.is_dir():
        if is_partial(path):
            raise StoreError(f"{path} is not published", hint="`bench resume` finishes it")
        return Results((load_run(path.absolute()),), {})
    stored: list[StoredRun] = []
    damaged: dict[Path, str] = {}
    for folder in run_folders(path):
        if is_partial(folder):
            continue
        try:
            stored.append(load_run(folder))
        except NewerSchemaError:
            raise
        except StoreError as error:
            damaged[folder] = str(error)
    stored.sort(key=lambda run: (run.manifest.started_at, run.manifest.run_id))
    return Results(tuple(stored), damaged)


def _frame(table: Any) -> pd.DataFrame:  # noqa: ANN401  # a pyarrow table
    import pandas as pd  # noqa: PLC0415  # takes longest of all to load, and only here is it needed

    nullable = {pa.int64(): pd.Int64Dtype(), pa.bool_(): pd.BooleanDtype()}
    frame: pd.DataFrame = table.to_pandas(types_mapper=nullable.get, maps_as_pydicts="strict")
    return frame


def _concat(columns: tuple[Column, ...], tables: Iterable[Any]) -> Any:  # noqa: ANN401  # likewise
    schema = arrow_schema(columns)
    return pa.concat_tables(
        [schema.empty_table(), *(table.select(schema.names).cast(schema) for table in tables)]
    )


def _plain_table(columns: tuple[Column, ...], rows: list[dict[str, Any]]) -> Any:  # noqa: ANN401  # likewise
    return pa.Table.from_pylist(rows, schema=arrow_schema(columns))


def _with_columns(table: Any, columns: tuple[Column, ...], values: Iterable[Any]) -> Any:  # noqa: ANN401  # likewise
    """The table with these columns, in place of its own of the same names."""
    kept = [name for name in table.column_names if name not in {column.name for column in columns}]
    new = dict(zip((column.name for column in columns), values, strict=True))
    return pa.table({**new, **{name: table[name] for name in kept}})


def _with_run(run: StoredRun, table: Any) -> Any:  # noqa: ANN401  # likewise
    manifest = run.manifest
    values = (manifest.run_id, manifest.scenario, run.simulated)
    return _with_columns(table, IDENTITY, (pa.repeat(value, table.num_rows) for value in values))


def _with_engine(run: StoredRun, table: Any) -> Any:  # noqa: ANN401  # likewise
    told = {
        launch.launch_id: launch.effective for launch in run.manifest.launches if launch.effective
    }
    engine = {launch_id: effective.engine for launch_id, effective in told.items()}
    version = {launch_id: effective.version for launch_id, effective in told.items()}
    return _with_columns(
        table, ENGINE, (_looked_up(table["launch_id"], facts) for facts in (engine, version))
    )


def _with_cell(run: StoredRun, table: Any) -> Any:  # noqa: ANN401  # likewise
    facts = (
        {m.cell_id: getattr(m, column.name) for m in run.measurements} for column in CELL_KEYS
    )
    return _with_columns(
        table, CELL_KEYS, [_looked_up(table["cell_id"], of_cell) for of_cell in facts]
    )


def _looked_up(keys: Any, facts: Mapping[str, Any]) -> Any:  # noqa: ANN401  # a pyarrow column
    """The fact of each key, or null; of millions of rows few keys are distinct."""
    encoded = keys.combine_chunks().dictionary_encode()
    values = [facts.get(key) for key in encoded.dictionary.to_pylist()]
    return pa.array(values).take(encoded.indices)


def _run_row(run: StoredRun) -> dict[str, Any]:
    manifest = run.manifest
    effective = next((launch.effective for launch in manifest.launches if launch.effective), None)
    return {
        "run_id": manifest.run_id,
        "scenario": manifest.scenario,
        "simulated": run.simulated,
        "engine": effective and effective.engine,
        "engine_version": effective and effective.version,
        "question": manifest.question,
        "speed": manifest.speed,
        "started_at": datetime.fromisoformat(manifest.started_at),
        "finished_at": manifest.finished_at and datetime.fromisoformat(manifest.finished_at),
        "cell_ct": len(run.measurements),
        "planned_cell_ct": len(planned_cell_ids(manifest)),
        "launch_ct": len(manifest.launches),
        "specdyno_version": manifest.specdyno_version,
        "path": str(run.folder),
    }
