"""Whole runs on servers that bench did not start, with somebody else at work on them."""

import asyncio

import pytest
from bench_stand_ins import SCENARIO

from bench.errors import InputError, ServerError
from bench.http import open_session
from bench.model import BASELINE, FindingKind, KeySource, Timeouts
from bench.plan import make_plan
from bench.runner import Asked, resume_run, run, start_run
from bench.scenario import load_scenario
from bench.server import start_server
from bench.store import load_run, open_results

LONG, SHORT = "measure.steady_s=2", "measure.steady_s=0.2"


class SecondClient:
    """Somebody else: keeps two requests running and remembers how each ended."""

    def __init__(self, base_url):
        self.base_url = base_url
        self.finished = []

    async def work(self, stop):
        async with open_session(self.base_url) as session:
            await asyncio.gather(*(self._slot(session, stop, slot) for slot in range(2)))

    async def _slot(self, session, stop, slot):
        while not stop.is_set():
            body = {
                "text": f"count {slot} {len(self.finished)}",
                "sampling_params": {"max_new_tokens": 200, "ignore_eos": True, "temperature": 0},
            }
            async with session.post("generate", json=body) as response:
                told = (await response.json())["meta_info"]
            self.finished.append((told["finish_reason"]["type"], told["completion_tokens"]))


@pytest.fixture
async def simulated(tmp_path):
    """Both arms' servers, running already: {arm: base URL}."""
    path = tmp_path / "servers.yaml"
    path.write_text(SCENARIO)
    servers = {}
    for launch in make_plan(load_scenario(path), simulated=True).launches:
        log = tmp_path / f"{launch.arm}.log"
        servers[launch.arm] = await start_server(
            launch.server, log_path=log, timeouts=Timeouts(term_s=5)
        )
    yield {arm: server.base_url for arm, server in servers.items()}
    for server in servers.values():
        await server._process.stop()


def begin(tmp_path, attach, **more):
    path = tmp_path / "attached.yaml"
    path.write_text(SCENARIO)
    asked = Asked(scenario=path, attach=tuple(attach.items()), **more)
    return start_run(asked, tmp_path / "results", command_line=["bench", "run"])


async def test_a_second_clients_requests_all_finish_untouched(simulated, tmp_path):
    url = simulated[BASELINE]
    other, stop = SecondClient(url), asyncio.Event()
    working = asyncio.create_task(other.work(stop))
    plan, writer = begin(tmp_path, {BASELINE: url}, only=("load=2",), overrides=(LONG,))
    stored = load_run(await run(plan, writer))
    stop.set()
    await working
    assert len(other.finished) > 2
    assert set(other.finished) == {("length", 200)}
    foreign = [f for f in stored.findings if f.kind is FindingKind.FOREIGN_TRAFFIC]
    assert {finding.cell_id for finding in foreign} == {m.cell_id for m in stored.measurements}
    assert all(m.status != "VALID" for m in stored.measurements)


async def test_attached_arms_alternate_and_are_told_to_be_two_servers(simulated, tmp_path):
    plan, writer = begin(tmp_path, simulated, exclusive=True, overrides=(SHORT,))
    stored = load_run(await run(plan, writer))
    measured = [(m.arm, m.load) for m in stored.measurements]
    assert measured == [(BASELINE, "1"), ("eagle3", "1"), ("eagle3", "2"), (BASELINE, "2")]
    kinds = {f.kind for f in stored.findings}
    assert FindingKind.DIFFERENT_MACHINES in kinds
    assert FindingKind.FOREIGN_TRAFFIC not in kinds
    assert FindingKind.LAUNCH_SPLIT not in kinds
    assert len(stored.comparisons) == 2
    assert {record.log_file for record in stored.manifest.launches} == {None}


async def test_every_worker_behind_a_router_is_read_and_asked(simulated, tmp_path):
    """The baseline's server takes the requests; both are said to be the workers behind it."""
    workers = f"server.worker_urls=[{simulated[BASELINE]}, {simulated['eagle3']}]"
    plan, writer = begin(
        tmp_path,
        {BASELINE: simulated[BASELINE]},
        only=("load=2",),
        exclusive=True,
        overrides=(SHORT, workers),
    )
    folder = await run(plan, writer)
    stored = load_run(folder)
    telemetry = open_results(folder).telemetry()
    running = telemetry[telemetry["name"] == "sglang:num_running_reqs"]
    assert set(running["rank"].fillna(0)) == {0, 1000}
    (unlike,) = [f for f in stored.findings if f.kind is FindingKind.CONFIG_NOT_AS_ASKED]
    assert "the 2 workers of the server are not alike" in unlike.message
    assert "speculative_algorithm: null | EAGLE3" in unlike.message
    (record,) = stored.manifest.launches
    assert record.effective.max_total_num_tokens > 0


async def test_a_worker_that_is_not_there_is_told_before_anything_is_measured(simulated, tmp_path):
    nobody = "server.worker_urls=[http://127.0.0.1:9]"
    plan, writer = begin(tmp_path, {BASELINE: simulated[BASELINE]}, overrides=(SHORT, nobody))
    with pytest.raises(ServerError, match=r"worker http://127\.0\.0\.1:9: no connection"):
        await run(plan, writer)


async def test_one_of_several_that_does_not_answer_is_told_before_any_is_measured(
    simulated, tmp_path
):
    attach = {BASELINE: simulated[BASELINE], "eagle3": "http://127.0.0.1:9"}
    plan, writer = begin(tmp_path, attach, overrides=(SHORT,))
    with pytest.raises(ServerError, match=r"nothing was measured\. Arm eagle3: .*connection"):
        await run(plan, writer)
    assert not writer.folder.exists()


def test_a_missing_key_is_told_before_the_run_is_begun(tmp_path, monkeypatch):
    monkeypatch.delenv("NO_SUCH_KEY", raising=False)
    key = KeySource(kind="env", place="NO_SUCH_KEY")
    with pytest.raises(InputError, match="NO_SUCH_KEY"):
        begin(tmp_path, {BASELINE: "http://127.0.0.1:9"}, api_key=key)
    assert not (tmp_path / "results").exists()


def test_a_run_is_taken_up_with_a_key_from_another_place(tmp_path, monkeypatch):
    monkeypatch.setenv("FIRST_KEY", "secret-one")
    first = KeySource(kind="env", place="FIRST_KEY")
    _, writer = begin(tmp_path, {BASELINE: "http://127.0.0.1:9"}, api_key=first)
    writer.close()
    monkeypatch.delenv("FIRST_KEY")
    with pytest.raises(InputError, match="FIRST_KEY"):
        resume_run("latest", tmp_path / "results", command_line=["bench", "resume"])
    (tmp_path / "key").write_text("secret-two")
    second = KeySource(kind="file", place=str(tmp_path / "key"))
    plan, writer = resume_run(
        "latest", tmp_path / "results", command_line=["bench", "resume"], api_key=second
    )
    writer.close()
    assert {launch.server.api_key for launch in plan.launches} == {second}
