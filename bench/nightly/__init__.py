"""Night after night: suites, their history, and what became slower, when and why.

`run_night` measures a suite and adds to its history; `judge` says how every series stands, from
the history alone (docs/nightly.md). Pages are made by the command line from the verdict.
"""

from __future__ import annotations

from bench.metrics.watched import METRICS, Metric, metric_of
from bench.nightly.acking import acknowledge
from bench.nightly.bisecting import Rerun, Reruns, bisect_script, compare_reruns
from bench.nightly.history import History, add, read_history
from bench.nightly.importing import Imported, import_runs
from bench.nightly.judge import Watch, judge
from bench.nightly.points_file import NewerHistoryError
from bench.nightly.recording import ForeignNames
from bench.nightly.running import NightOutcome, run_night
from bench.nightly.suite import Suite, load_suite, watch_of
from bench.nightly.telling import post, series_lines, summary_markdown, verdict_json

__all__ = [
    "METRICS",
    "ForeignNames",
    "History",
    "Imported",
    "Metric",
    "NewerHistoryError",
    "NightOutcome",
    "Rerun",
    "Reruns",
    "Suite",
    "Watch",
    "acknowledge",
    "add",
    "bisect_script",
    "compare_reruns",
    "import_runs",
    "judge",
    "load_suite",
    "metric_of",
    "post",
    "read_history",
    "run_night",
    "series_lines",
    "summary_markdown",
    "verdict_json",
    "watch_of",
]
