"""specdyno's bench: measures what speculative decoding really gains over plain decoding, and why.

Two lines give a past run as DataFrames::

    import bench frames = bench.results("results")          # frames.measurements,
    frames.samples(), frames.telemetry() …

Importing this package imports nothing heavy: pandas and pyarrow are loaded when `results` is
called.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from bench.store import Results

__all__ = ["__version__", "results"]

__version__ = "0.1.0"


def results(path: str | Path = "results") -> Results:
    """Open every published run below `path` for reading as pandas DataFrames.

    Args:
        path: A results folder, a scenario's folder in it, or one run's folder.

    Returns:
        The tables (columns: docs/results.md).

    Raises:
        bench.errors.StoreError: The folder does not exist or was written by a newer specdyno.
    """
    from bench.store import open_results  # noqa: PLC0415  # pandas and pyarrow load only here

    return open_results(path)
