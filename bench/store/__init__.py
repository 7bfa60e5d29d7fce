"""Results on disk: written whole or not at all, read back as records or as DataFrames.

Writing: `create_run` or `open_part_run` gives the `RunWriter`. Reading: `load_run`, `list_runs`
    and `find_run` give records,
`open_results` DataFrames. What is on disk, and what every column means: docs/results.md and
`bench.store.columns`.
"""

from __future__ import annotations

from bench.store.answer import answer_json
from bench.store.columns import SCHEMA_VERSION
from bench.store.faults import faults_of
from bench.store.frames import Results, open_results
from bench.store.layout import LOGS, new_run_id
from bench.store.manifest import (
    Manifest,
    PlannedCell,
    PlannedLaunch,
    RunStatus,
    Session,
    new_manifest,
    new_session,
)
from bench.store.opening import create_run, is_reopenable, open_part_run, reopen_run
from bench.store.reader import (
    RunSummary,
    StoredRun,
    abandoned_logs,
    can_retry,
    find_run,
    list_runs,
    load_run,
    load_samples,
)
from bench.store.resume import check_resumable
from bench.store.writer import RunWriter

__all__ = [
    "LOGS",
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
    "abandoned_logs",
    "answer_json",
    "can_retry",
    "check_resumable",
    "create_run",
    "faults_of",
    "find_run",
    "is_reopenable",
    "list_runs",
    "load_run",
    "load_samples",
    "new_manifest",
    "new_run_id",
    "new_session",
    "open_part_run",
    "open_results",
    "reopen_run",
]
