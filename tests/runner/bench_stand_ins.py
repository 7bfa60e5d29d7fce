"""A server, a load client and a telemetry that do nothing but tell what was asked of them."""

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from bench import clock
from bench.errors import ServerError
from bench.load.generator import CellLoad
from bench.model import (
    ClientStats,
    EffectiveConfig,
    RequestSample,
    RequestStatus,
    TokenSource,
)
from bench.runner import Asked, start_run
from bench.sglang.start_lines import NOT_TOLD, StartTimes
from bench.telemetry import Readings

SCENARIO = """\
name: stand-in
question: Does it pay?
target: {path: moonshotai/Kimi-K2.5, revision: main}
draft: {path: lightseekorg/kimi-k2.5-eagle3, revision: main}
server:
  gpus: 8
  arguments: [--tp-size 8, --max-running-requests 8, --enable-metrics, --enable-cache-report]
arms:
  baseline: {}
  eagle3:
    speculative: {algorithm: EAGLE3, num_steps: 3, eagle_topk: 1, num_draft_tokens: 4}
workloads:
  chat: {input_tok: 32, max_output_tok: 16, sampling: {temperature: 0}}
loads:
  concurrency: [1, 2]
measure: {steady_s: 1, requests_per_slot: 2, pairs: 1}
sim:
  hardware: h200-x8
  target: kimi-k2.5
  acceptance: kimi-k2.5-eagle3
  speed: 1
  measure: {steady_s: 0.1, requests_per_slot: 2, pairs: 1}
"""

MS = 1_000_000
STEP_NS = 10 * MS


class World:
    """What happens, and a journal of what was asked for, in order.

    Attributes:
        journal: E.g. `start baseline`, `between`, `watch`, `load 1`, `watched`, `stop`.
        starts: Called with the arm at each start; may raise, or wait.
        begins: Called with the cell before a load, which then forgets earlier wishes to stop.
        loads: Called with the cell at each load; likewise.
        stops: Called with the server when it is to stop; likewise.
        opens: Called when a load client is opened; likewise.
        samples: Makes the samples of a cell.
        servers: All that were started.
    """

    def __init__(self):
        self.journal = []
        self.starts = None
        self.begins = None
        self.loads = None
        self.stops = None
        self.opens = None
        self.samples = samples_of
        self.servers = []
        self.clients = []

    def install(self, monkeypatch):
        monkeypatch.setattr("bench.runner.measuring.start_server", self.start_server)
        monkeypatch.setattr("bench.runner.measuring.watch", self.watch)
        monkeypatch.setattr("bench.load.generator.open_client", self.open_client)
        monkeypatch.setattr("bench.runner.measuring.WATCH_S", 0.01)

    async def start_server(self, config, *, log_path, on_progress=lambda _: None, **_rest):
        arm = "eagle3" if "--speculative-algorithm" in config.arguments else "baseline"
        self.journal.append(f"start {arm}")
        log_path.write_text("log\n")
        on_progress("loading")
        try:
            await _call(self.starts, arm)
        except asyncio.CancelledError:
            self.journal.append("start given up")
            raise
        server = Server(world=self, arm=arm)
        self.servers.append(server)
        return server

    @asynccontextmanager
    async def watch(self, _base_url, **_rest):
        self.journal.append("watch")
        try:
            yield Readings()
        finally:
            self.journal.append("watched")

    async def open_client(self, _base_url, **_rest):
        await _call(self.opens, None)
        self.clients.append(Client(world=self))
        return self.clients[-1]

    @property
    def server(self):
        return self.servers[-1]


@dataclass
class Server:
    world: World
    arm: str
    exit_code: int | None = None
    base_url: str = "http://127.0.0.1:1"
    argv: tuple = ("server",)
    api_key: str | None = None
    model_name: str = "model"
    gpu_indices: tuple = ()
    gpu_watch: tuple = ()
    worker_urls: tuple = ()
    gpus_unseen: str | None = None
    admin_api_key: str | None = None
    times: StartTimes = NOT_TOLD
    pid: int | None = 1
    ready_ns: int = field(default_factory=clock.now_ns)
    effective: EffectiveConfig = field(
        default_factory=lambda: EffectiveConfig(
            speculative=(), other=(), version="0.5.23", simulated=True
        )
    )

    def exited(self):
        return self.exit_code

    def findings(self, _cell_id):
        return ()

    async def between_cells(self):
        self.world.journal.append("between")

    async def stop(self):
        self.world.journal.append("stop")
        await _call(self.world.stops, self)
        return 0 if self.exit_code is None else self.exit_code


@dataclass
class Client:
    world: World
    cancelled: bool = False
    worker_pids: tuple[int, ...] = ()

    async def run_cell(self, cell, **_rest):
        await _call(self.world.begins, cell)
        self.cancelled = False
        self.world.journal.append(f"load {cell.load.label}")
        work = asyncio.ensure_future(_call(self.world.loads, cell))
        while not work.done() and not self.cancelled:
            await asyncio.wait({work}, timeout=0.01)
        work.cancel()
        if work.done() and not work.cancelled():
            work.result()
        samples = self.world.samples(cell)
        if self.cancelled:
            samples = [
                replace(s, status=RequestStatus.CANCELLED, output_tok=None) for s in samples
            ]
        return CellLoad(samples=samples, client=CLIENT)

    def cancel(self):
        self.cancelled = True

    async def close(self):
        self.world.journal.append("close client")


CLIENT = ClientStats(
    send_late_p50_ms=0.0,
    send_late_p99_ms=0.1,
    loop_lag_p99_ms=0.1,
    cpu_share=0.1,
    events_per_s=100.0,
    max_in_flight=2,
)


def samples_of(cell, *, prompt_sha256="ab" * 32):
    """Requests one after the other in each slot, a step every 10 ms: of 1 token, or of about 2."""
    start_ns = clock.now_ns()
    slots = cell.load.concurrency
    counts = (1, 3, 5, 7, 9, 11, 13, 16) if cell.arm_is_speculative else tuple(range(1, 17))
    speculation = {
        "spec_verify_ct": 7,
        "spec_num_correct_drafts": 8,
        "spec_num_proposed_drafts": 21,
        "spec_correct_drafts_histogram": (0, 6, 1, 0),
    }
    rows = []
    for index in range(cell.warmup_requests + cell.requests):
        slot, turn = index % slots, index // slots
        sent_ns = start_ns + turn * (len(counts) + 1) * STEP_NS
        events = tuple(sent_ns + (i + 1) * STEP_NS for i in range(len(counts)))
        rows.append(
            RequestSample(
                cell_id=cell.cell_id,
                index=index,
                phase="warmup" if index < cell.warmup_requests else "measure",
                slot=slot,
                prompt_id=f"p{index}",
                prompt_sha256=prompt_sha256,
                seed=index,
                due_ns=sent_ns,
                sent_ns=sent_ns,
                first_byte_ns=events[0],
                ended_ns=events[-1],
                status=RequestStatus.OK,
                http_status=200,
                finish_reason="stop",
                prompt_tok=32,
                cached_tok=0,
                output_tok=16,
                token_source=TokenSource.SERVER,
                event_ns=events,
                event_tok=counts,
                first_visible_ns=events[0],
                tokens_before_first_event=False,
                read_ct=len(events),
                text_sha256="cd" * 32,
                text_block_hashes=(1,),
                text_chars=64,
                bigram_ct=15,
                distinct_bigram_ct=15,
                **(speculation if cell.arm_is_speculative else {}),
            )
        )
    return rows


def failed(samples, status, message="gone"):
    return [
        replace(
            s, status=status, error_message=message, output_tok=None, event_ns=(), event_tok=()
        )
        for s in samples
    ]


def begin(tmp_path: Path, *, pairs=1, only=(), attach=()):
    """A plan (simulated servers, never started) and the folder of its run."""
    path = tmp_path / "stand-in.yaml"
    path.write_text(SCENARIO)
    asked = Asked(
        scenario=path,
        simulated=not attach,
        overrides=(f"sim.measure.pairs={pairs}",),
        only=tuple(only),
        attach=tuple(attach),
    )
    return start_run(asked, tmp_path / "results", command_line=["bench", "run"])


async def _call(hook, argument):
    if hook is not None:
        result = hook(argument)
        if result is not None:
            await result


async def forever(_argument=None):
    await asyncio.Event().wait()


def once(error):
    """A hook that raises the first time only."""
    left = [error]

    def hook(_argument):
        if left:
            raise left.pop()

    return hook


def always(message="would not start"):
    def hook(_argument):
        raise ServerError(message, hint="look at the log")

    return hook
