"""The only wiring: plan -> server -> load and telemetry -> metrics -> store, one launch at a time.

`open_bench(...)` gives a `Bench`; `await bench.measure(launch)` starts the launch's server unless
it is already running and measures the launch's cells, each stored the moment it is finished;
`run(...)` is a loop over it and publishes the answer. The tuner calls the same two.

What happens when something breaks:

- arguments that SGLang itself refuses, in whichever arm, end a run before its first launch;
- a launch that does not start is recorded with its reason, and the plan goes on with the others;
  an arm whose server failed to start twice is not tried again;
- a server that dies is started once more for the cells that are left, the one it died in last
  (noted: the launch is split);
- a load worker that dies is replaced and its cell measured once more;
- a start that is not over when the time of `--budget` is, is cut short; cells that no longer fit
  are not begun, the one in hand is finished;
- a full disk, a server that will not end, Ctrl-C or TERM end the run; the server is stopped first,
  and every finished cell is on disk for `bench resume`.
"""

from __future__ import annotations

from bench.runner.beginning import LATEST, Asked, plan_of, resume_run, start_run
from bench.runner.budgeting import require_fit
from bench.runner.events import (
    CellFinished,
    CellProgress,
    CellStarting,
    Event,
    LaunchEnded,
    LaunchProgress,
    LaunchReady,
    LaunchStarting,
    Noted,
)
from bench.runner.measuring import Bench, open_bench
from bench.runner.refusing import own_answer
from bench.runner.runs import answer_so_far, publish, run

__all__ = [
    "LATEST",
    "Asked",
    "Bench",
    "CellFinished",
    "CellProgress",
    "CellStarting",
    "Event",
    "LaunchEnded",
    "LaunchProgress",
    "LaunchReady",
    "LaunchStarting",
    "Noted",
    "answer_so_far",
    "open_bench",
    "own_answer",
    "plan_of",
    "publish",
    "require_fit",
    "resume_run",
    "run",
    "start_run",
]
