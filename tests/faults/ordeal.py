"""A run that is struck again and again, and taken up until it is whole."""

import contextlib
import os
import re
import signal
import time

from bench_command import Command
from rehearsal import write_scenario

from bench.plan import make_plan
from bench.scenario import load_scenario
from bench.store import load_run, load_samples

SPEED = 10
MOST_TRIES = 12


class Ordeal:
    """One scenario, from its first run to its published end.

    Attributes:
        world_s: How long its commands ran.
    """

    def __init__(self, folder, arms, *, concurrency=(2,), requests=2):
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.scenario = write_scenario(
            folder,
            arms,
            loads={"concurrency": list(concurrency)},
            timeouts={"ready_s": 30, "request_s": 6, "drain_s": 3, "term_s": 3},
        )
        override = f"sim.measure.requests_per_slot={requests}"
        self._options = ("--sim", "--quiet", "--set", override)
        plan = make_plan(load_scenario(self.scenario, (override,)), simulated=True)
        self.cells = {cell.cell_id: cell for launch in plan.launches for cell in launch.cells}
        self.world_s = 0.0
        self._finished = {}

    def go_through(self, blows):
        """Run, strike, resume, strike …, then without blows to the end; the published folder."""
        for blow in [*blows, *[None] * (MOST_TRIES - len(blows))]:
            began = time.monotonic()
            code = self._strike(self._next_command(), blow)
            self.world_s += time.monotonic() - began
            run = self._run()
            self._nothing_is_lost(run)
            if run is not None and load_run(run).published:
                if set(self._finished) == set(self.cells):
                    return run
            else:
                assert blow or code not in {0, 4}, code
        raise AssertionError("never whole")

    def _next_command(self):
        """What a user does next: begin, go on, or try again what failed."""
        run = self._run()
        if run is None:
            return ("run", self.scenario, *self._options)
        retry = ("--retry-failed",) if load_run(run).published else ()
        return ("resume", "latest", "--quiet", *retry)

    def _run(self):
        """The one run there is, published or not; None: not begun."""
        found = list(self.folder.glob("results/*/*/manifest.json"))
        assert len(found) <= 1
        return found[0].parent if found else None

    def _strike(self, words, blow):
        command = Command(*map(str, words), cwd=self.folder)
        if blow is not None:
            time.sleep(blow[1])
            _deliver(command, blow[0])
        code, out, err = command.end()
        assert not re.search("^Traceback", out + err, re.MULTILINE), err  # a server's is indented
        assert code in {0, 3, 4, 130, -signal.SIGKILL, -signal.SIGTERM}, (code, err)
        assert command.leaves_nothing()
        return code

    def _nothing_is_lost(self, run):
        """Every cell that was ever finished is there, as it was."""
        now = {} if run is None else {m.cell_id: m for m in load_run(run).measurements}
        for cell_id, before in self._finished.items():
            assert cell_id in now, f"cell {cell_id} is lost"
            same = ("launch_id", "output_tok_per_s", "request_ct", "ok_ct", "failures_by_kind")
            for name in same:
                assert getattr(now[cell_id], name) == getattr(before, name)
        self._finished = now

    def is_consistent(self, folder):
        """Assert that a published run holds together."""
        run, samples = load_run(folder), load_samples(folder)
        assert run.published
        ids = [m.cell_id for m in run.measurements]
        assert len(ids) == len(set(ids))
        assert set(ids) == set(self.cells)
        assert {s.cell_id for s in samples} == set(ids)
        for m in run.measurements:
            cell = self.cells[m.cell_id]
            rows = [s for s in samples if s.cell_id == m.cell_id]
            assert sorted(s.index for s in rows) == list(range(len(rows)))
            assert len(rows) == cell.warmup_requests + cell.requests
            assert m.request_ct == sum(s.phase == "measure" for s in rows) == cell.requests
            assert m.ok_ct + m.failed_ct == m.request_ct
            assert sum(count for _, count in m.failures_by_kind) == m.failed_ct
            for s in rows:
                assert (s.error_message is None) == (s.status == "ok")
                assert s.sent_ns is None or s.sent_ns <= s.ended_ns
        known = {launch.launch_id for launch in run.manifest.launches}
        assert {m.launch_id for m in run.measurements} <= known
        assert not [path for path in folder.parent.iterdir() if path.name.startswith(".partial")]
        assert not re.search(r"\.(tmp|new)$", " ".join(str(p) for p in folder.rglob("*")))


def _deliver(command, kind):
    """Strike a running command, or a process of its."""
    if kind in {"bench.simulator", "bench.load.worker", "bench.server.supervisor"}:
        victims = command.processes(kind)
        for pid in victims:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    elif command.process.poll() is None:
        command.process.send_signal(signal.Signals[f"SIG{kind}"])
