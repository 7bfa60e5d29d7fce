"""Results on disk: written whole or not at all, read back as records or as DataFrames.

Writing: `create_run` or `open_part_run` gives the `RunWriter`. Reading: `load_run`, `list_runs`
    and `find_run` give records,
`open_results` DataFrames. What is on disk, and what every column means: docs/results.md and
`bench.store.columns`.
"""

from __future__ import annotations

from bench.store.answer import answer_json
from bench.store.columns import SCHEMA_VERSION
from bench.store.frames import Results, open_results
from bench.store.layout import new_run_id
from bench.store.manifest import (
    Manifest,
    PlannedCell,
    PlannedLaunch,
    RunStatus,
    Session,
    new_manifest,
    new_session,
)
from bench.store.reader import RunSummary, StoredRun, find_run, list_runs, load_run, load_samples
from bench.store.resume import check_resumable
from bench.store.writer import RunWriter, create_run, open_part_run

__all__ = [
    "SCHEMA_VERSION",
    "Manifest",
    "PlannedCell",
    "PlannedLaunch",
    "Results",
    "RunStatus",
    "RunSummary",
    "RunWriter",
    "Session",
    "StoredRun",
    "answer_json",
    "check_resumable",
    "create_run",
    "find_run",
    "list_runs",
    "load_run",
    "load_samples",
    "new_manifest",
    "new_run_id",
    "new_session",
    "open_part_run",
    "open_results",
]
