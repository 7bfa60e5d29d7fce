"""The real SGLang, running already: measured beside somebody else, and alone."""

import asyncio
from pathlib import Path

import pytest
import pytest_asyncio

from bench.http import open_session
from bench.model import BASELINE, FindingKind, RequestStatus, Timeouts
from bench.plan import make_plan
from bench.runner import Asked, run, start_run
from bench.scenario import load_scenario
from bench.server import start_server
from bench.sglang import control
from bench.store import load_run, load_samples

pytestmark = [
    pytest.mark.sglang_long,
    pytest.mark.timeout(900),
    pytest.mark.asyncio(loop_scope="module"),
]

LAB = Path(__file__).parents[2] / "scenarios" / "lab.yaml"
FEW = ("measure.requests_per_slot=8", "measure.steady_s=0.1")
PROOF = {"SPECDYNO_PROOF": "arrived"}
OTHERS_TOK = 400


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(lab, tmp_path_factory):
    """The lab's baseline server, started once for all tests here."""
    folder = tmp_path_factory.mktemp("attached")
    config = make_plan(load_scenario(LAB)).launches[0].server
    running = await start_server(
        config,
        log_path=folder / "server.log",
        timeouts=Timeouts(ready_s=300, request_s=120),
        environment_extra=PROOF,
    )
    yield running
    assert await running.stop() == 0


async def measure(url, folder, *only, exclusive=False):
    asked = Asked(
        scenario=LAB,
        attach=((BASELINE, url),),
        only=only,
        overrides=FEW,
        exclusive=exclusive,
    )
    plan, writer = start_run(asked, folder / "results", command_line=["bench", "run"])
    return load_run(await run(plan, writer))


class SecondClient:
    """Somebody else, who keeps three long requests running."""

    def __init__(self, base_url):
        self.base_url = base_url
        self.ended = []

    async def work(self, stop):
        async with open_session(self.base_url) as session:
            await asyncio.gather(*(self._slot(session, stop, slot) for slot in range(3)))

    async def _slot(self, session, stop, slot):
        while not stop.is_set():
            sampling = {"max_new_tokens": OTHERS_TOK, "ignore_eos": True, "temperature": 0}
            body = {"text": f"Tell me of {slot}.", "sampling_params": sampling}
            async with session.post("generate", json=body) as response:
                told = (await response.json())["meta_info"]
            self.ended.append((told["finish_reason"]["type"], told["completion_tokens"]))


async def until_running(server, count):
    """SGLang tells of its load every few steps."""
    async with open_session(server.base_url) as session, asyncio.timeout(60):
        while (await control.running_requests(session) or 0) < count:  # noqa: ASYNC110
            await asyncio.sleep(0.05)


async def test_the_environment_of_the_real_server_can_be_read(server):
    assert server.findings("c1") == ()  # the variable has arrived, and that was seen


async def test_a_second_clients_requests_all_finish_untouched(server, tmp_path):
    other, stop = SecondClient(server.base_url), asyncio.Event()
    working = asyncio.create_task(other.work(stop))
    await until_running(server, 3)
    stored = await measure(server.base_url, tmp_path, "workload=generate")
    stop.set()
    await working
    assert len(other.ended) >= 3
    assert set(other.ended) == {("length", OTHERS_TOK)}
    assert {s.status for s in load_samples(stored.folder)} == {RequestStatus.OK}
    assert FindingKind.FOREIGN_TRAFFIC in {f.kind for f in stored.findings}


async def test_stopping_aborts_our_requests_and_no_others(server):
    from bench.load.generator import open_client

    launch = make_plan(load_scenario(LAB, ["workloads.chat.max_output_tok=1500"])).launches[0]
    cell = next(cell for cell in launch.cells if cell.load.concurrency == 4)
    other, stop = SecondClient(server.base_url), asyncio.Event()
    working = asyncio.create_task(other.work(stop))
    await until_running(server, 3)
    stop.set()  # these are its last
    client = await open_client(server.base_url, abort_own=True)
    load = asyncio.create_task(client.run_cell(cell, model_name=server.model_name))
    await until_running(server, 5)
    client.cancel()
    samples = (await load).samples
    await working
    await client.close()
    assert RequestStatus.CANCELLED in {s.status for s in samples}
    assert len(other.ended) >= 3
    assert set(other.ended) == {("length", OTHERS_TOK)}
    await server.between_cells()


async def test_an_exclusive_server_is_emptied_between_cells_and_lives_on(server, tmp_path):
    stored = await measure(server.base_url, tmp_path, "workload=generate", exclusive=True)
    kinds = {f.kind for f in stored.findings}
    assert not kinds & {FindingKind.FOREIGN_TRAFFIC, FindingKind.ACCESS_REFUSED}
    assert {s.status for s in load_samples(stored.folder)} == {RequestStatus.OK}
    assert {s.cached_tok for s in load_samples(stored.folder)} <= set(range(16))
    assert server.exited() is None
