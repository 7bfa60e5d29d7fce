import asyncio
import socket
import sys
from pathlib import Path

import psutil
import pytest

from bench import gpu
from bench.errors import InputError, ServerError
from bench.metrics import hang
from bench.model import FindingKind, KeySource, ServerConfig, Severity, Timeouts
from bench.server import ending, launch, spinning, start_server
from bench.server.starting import StartError, said_anew
from bench.sglang.failures import FailureClass
from bench.telemetry import watch

STAND_IN = Path(__file__).parent / "stand_in.py"
QUICK = Timeouts(ready_s=20, request_s=20, connect_s=5, drain_s=5, term_s=5)


def stand_in(*arguments, **more):
    return ServerConfig(
        arguments=arguments, command=("{python}", str(STAND_IN)), launcher="local", **more
    )


async def start(config, tmp_path, timeouts=QUICK, **more):
    return await start_server(config, log_path=tmp_path / "server.log", timeouts=timeouts, **more)


def pids_left(state):
    pids = [int(pid) for pid in (state / "pids").read_text().split()]
    assert pids
    return [
        pid for pid in pids if psutil.pid_exists(pid) and psutil.Process(pid).status() != "zombie"
    ]


async def until(condition):
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110  # what is waited for is another process
            await asyncio.sleep(0.01)


def listens(base_url):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", int(base_url.rpartition(":")[2]))) == 0


async def test_a_server_is_started_read_back_and_gone_after_stop(tmp_path):
    server = await start(stand_in("--state", str(tmp_path)), tmp_path)
    assert listens(server.base_url)
    assert server.exited() is None
    assert server.model_name == "tiny"
    assert server.effective.version == "0.5.23"
    assert server.effective.max_total_num_tokens == 1000
    assert server.effective.decode_graph_batch_sizes == (1, 2)
    assert server.argv[0] == sys.executable
    assert server.started_ns < server.ready_ns
    assert len(pids_left(tmp_path)) == 2
    await server.stop()
    assert server.exited() is not None
    assert pids_left(tmp_path) == []
    assert not listens(server.base_url)
    assert await server.stop() == server.exited()


async def test_between_cells_aborts_and_flushes_until_nothing_is_pending(tmp_path):
    server = await start(stand_in("--state", str(tmp_path)), tmp_path)
    try:
        (tmp_path / "calls").unlink()
        await server.between_cells()
        calls = (tmp_path / "calls").read_text().split()
    finally:
        await server.stop()
    assert calls[0] == "/abort_request"
    assert calls[1:] == ["/flush_cache"] * 3


async def test_a_server_that_never_drains_is_an_error(tmp_path):
    hurried = Timeouts(ready_s=20, request_s=20, drain_s=0.3, term_s=5)
    server = await start(stand_in("--acting", "never-drains"), tmp_path, hurried)
    try:
        with pytest.raises(ServerError, match="still had requests"):
            await server.between_cells()
    finally:
        await server.stop()


async def test_a_server_that_ignores_term_is_killed(tmp_path):
    hurried = Timeouts(ready_s=20, request_s=20, term_s=0.2)
    config = stand_in("--state", str(tmp_path), "--acting", "ignores-term")
    server = await start(config, tmp_path, hurried)
    assert await server.stop() == -9
    assert pids_left(tmp_path) == []


async def test_a_start_that_fails_tells_class_lines_and_log(tmp_path):
    with pytest.raises(StartError) as caught:
        await start(stand_in("--acting", "oom"), tmp_path)
    first_line = str(caught.value).splitlines()[0]
    assert caught.value.failure_class is FailureClass.CUDA_OOM
    assert "exit status 1" in first_line
    assert "cuda_oom: torch.OutOfMemoryError" in first_line
    assert "Load weight begin" in str(caught.value)
    assert str(tmp_path / "server.log") in caught.value.hint


async def test_a_port_that_was_taken_is_tried_again_with_another(tmp_path):
    config = stand_in("--state", str(tmp_path), "--acting", "port-taken-once")
    server = await start(config, tmp_path)
    await server.stop()
    assert (tmp_path / "tried").exists()
    assert (tmp_path / "server.log").read_text().count("address already in use") == 1


async def test_a_start_without_progress_is_stopped_and_told(tmp_path):
    hurried = Timeouts(ready_s=0.6, term_s=5)
    with pytest.raises(StartError) as caught:
        await start(stand_in("--acting", "silent"), tmp_path, hurried)
    assert caught.value.failure_class is FailureClass.HANG_IN_GRAPH_CAPTURE
    assert "no progress" in str(caught.value)


async def test_saying_the_same_again_and_again_is_no_progress(tmp_path):
    hurried = Timeouts(ready_s=1.0, term_s=1)
    with pytest.raises(StartError, match="no progress"):
        await start(stand_in("--acting", "repeats"), tmp_path, hurried)


def test_what_is_said_anew():
    heard = set()
    assert said_anew(["[2026-01-01 10:00:00] waiting", "x"], heard)
    assert not said_anew(["[2026-01-02 10:00:07.25] waiting"], heard)
    assert not said_anew([], heard)
    assert said_anew(["[2026-01-02 10:00:08] loaded 3 of 4"], heard)


def one_gpu(**readings):
    """A machine's only GPU, which reads as given."""
    read = {
        "power_w": 140.0,
        "power_limit_w": 600.0,
        "utilisation_pct": 100.0,
        "memory_used_bytes": 5.0 * 2**30,
    }
    return lambda _index: list((read | readings).items())


async def test_gpus_that_spin_end_a_start_long_before_its_time(tmp_path, monkeypatch):
    monkeypatch.setattr(launch, "visible_gpus", lambda *_a, **_k: (0,))
    monkeypatch.setattr(gpu, "read_gpu", one_gpu())
    monkeypatch.setattr(spinning, "HANG_S", 0.3)
    monkeypatch.setattr(hang, "LEAST_S", 0.1)
    with pytest.raises(StartError) as caught:
        await start(stand_in("--acting", "silent", gpus=1), tmp_path)
    assert caught.value.failure_class is FailureClass.GPU_SPIN_HANG
    assert "GPUs spun" in str(caught.value)
    assert "NCCL_P2P" in caught.value.hint


async def test_gpus_at_work_are_waited_for(tmp_path, monkeypatch):
    monkeypatch.setattr(launch, "visible_gpus", lambda *_a, **_k: (0,))
    monkeypatch.setattr(gpu, "read_gpu", one_gpu(power_w=500.0))
    monkeypatch.setattr(spinning, "HANG_S", 0.1)
    monkeypatch.setattr(hang, "LEAST_S", 0.1)
    with pytest.raises(StartError) as caught:
        await start(
            stand_in("--acting", "silent", gpus=1), tmp_path, Timeouts(ready_s=0.6, term_s=5)
        )
    assert caught.value.failure_class is FailureClass.HANG_IN_GRAPH_CAPTURE


async def test_gpu_memory_that_does_not_come_back_is_an_error(tmp_path, monkeypatch):
    monkeypatch.setattr(launch, "visible_gpus", lambda *_a, **_k: (0,))
    monkeypatch.setattr(ending, "MEMORY_BACK_S", 0.05)
    held = [1.0 * 2**30]
    monkeypatch.setattr(gpu, "read_gpu", lambda _i: [("memory_used_bytes", held[0])])
    server = await start(stand_in(gpus=1), tmp_path)
    assert server.gpu_indices == (0,)
    held[0] = 61.0 * 2**30
    with pytest.raises(ServerError, match=r"GPU memory is still held .* GPU 0 60\.0 GiB"):
        await server.stop()
    held[0] = 1.5 * 2**30
    await server.stop()


async def test_a_refused_generation_is_told_at_once(tmp_path):
    with pytest.raises(StartError, match=r"does not generate: .*this model does not generate"):
        await start(stand_in("--acting", "refuses"), tmp_path)


async def test_a_server_that_is_still_warming_up_is_waited_for(tmp_path):
    said = []
    server = await start(stand_in("--acting", "warming"), tmp_path, on_progress=said.append)
    await server.stop()
    assert server.exited() is not None


async def test_giving_up_a_start_leaves_no_process(tmp_path):
    task = asyncio.create_task(
        start(stand_in("--state", str(tmp_path), "--acting", "silent"), tmp_path)
    )
    await until(lambda: (tmp_path / "pids").exists() and (tmp_path / "pids").read_text())
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert pids_left(tmp_path) == []


async def test_a_crash_while_running_is_seen(tmp_path):
    server = await start(stand_in("--state", str(tmp_path), "--acting", "dies-later"), tmp_path)
    await until(lambda: server.exited() is not None)
    assert server.exited() == -11
    with pytest.raises(ServerError):
        await server.between_cells()
    assert await server.stop() == -11
    assert pids_left(tmp_path) == []


async def test_keys_are_used_and_never_stored(tmp_path):
    config = stand_in("--api-key", "open-sesame-7")
    server = await start(config, tmp_path)
    try:
        assert server.api_key == "open-sesame-7"
        assert "open-sesame-7" not in " ".join(server.argv)
        assert "open-sesame-7" not in str(server.effective)
        await server.between_cells()
    finally:
        await server.stop()
    log = (tmp_path / "server.log").read_text()
    assert "[redacted] again" in log
    assert "open-sesame-7" not in log


async def test_only_what_the_configuration_names_is_added_to_the_environment(
    tmp_path, monkeypatch
):
    monkeypatch.setenv("SPECDYNO_CLOCK_SPEED", "6")
    config = stand_in(environment=(("NCCL_ALGO", "Ring"),))
    server = await start(config, tmp_path, environment_extra={"EXTRA": "1"})
    await server.stop()
    environment = dict(server.effective.other)["environment_of_the_server"]
    assert '"NCCL_ALGO": "Ring"' in environment
    assert '"EXTRA": "1"' in environment
    assert "SPECDYNO_CLOCK_SPEED" not in environment


async def test_settings_that_are_not_as_asked_are_a_finding(tmp_path):
    server = await start(stand_in("--speculative-num-draft-tokens", "8"), tmp_path)
    findings = server.findings("c1")
    await server.stop()
    assert [finding.kind.value for finding in findings] == ["config_not_as_asked"]
    assert findings[0].severity is Severity.SUSPECT
    assert "speculative_num_draft_tokens 4 (asked 8)" in findings[0].message


async def test_other_settings_that_are_not_as_asked_are_a_note(tmp_path):
    server = await start(stand_in("--served-model-name", "large"), tmp_path)
    findings = server.findings("c1")
    await server.stop()
    assert [finding.severity for finding in findings] == [Severity.NOTE]
    assert findings[0].cell_id == "c1"


async def test_an_attached_server_is_never_stopped(tmp_path):
    running = await start(stand_in("--state", str(tmp_path)), tmp_path)
    try:
        config = ServerConfig(arguments=(), launcher="attached", url=running.base_url + "/")
        attached = await start(config, tmp_path)
        assert attached.base_url == running.base_url
        assert attached.pid is None
        assert attached.argv == ()
        (tmp_path / "calls").unlink()
        await attached.between_cells()
        assert not (tmp_path / "calls").exists()
        assert await attached.stop() is None
        assert listens(running.base_url)
    finally:
        await running.stop()


async def test_an_exclusive_server_is_emptied_between_cells_and_never_stopped(tmp_path):
    running = await start(stand_in("--state", str(tmp_path)), tmp_path)
    try:
        config = ServerConfig(
            arguments=(), launcher="attached", url=running.base_url, exclusive=True
        )
        attached = await start(config, tmp_path)
        (tmp_path / "calls").unlink()
        await attached.between_cells()
        calls = (tmp_path / "calls").read_text().split()
        assert calls == ["/abort_request", *["/flush_cache"] * 3]
        assert await attached.stop() is None
        assert listens(running.base_url)
    finally:
        await running.stop()


async def test_what_an_attached_server_refuses_is_a_finding_and_no_failure(tmp_path):
    running = await start(
        stand_in("--acting", "admin-key", "--api-key", "open-sesame-7"), tmp_path
    )
    try:
        arguments = ("--served-model-name", "tiny")
        config = ServerConfig(
            arguments=arguments, launcher="attached", url=running.base_url, exclusive=True
        )
        attached = await start(config, tmp_path)
        await attached.between_cells()
        await attached.between_cells()
        assert attached.model_name == "tiny"
        assert attached.effective.version is None
        told = [f for f in attached.findings("c1") if f.kind is FindingKind.ACCESS_REFUSED]
        assert [finding.severity for finding in told] == [Severity.NOTE] * 2
        assert "tell its settings" in told[0].message
        assert "abort and flush between cells (status 401)" in told[1].message
    finally:
        await running._process.stop()


async def test_a_key_is_read_from_where_the_configuration_says(tmp_path, monkeypatch):
    monkeypatch.setenv("OUR_KEY", "open-sesame-7")
    config = stand_in(api_key=KeySource(kind="env", place="OUR_KEY"))
    server = await start(config, tmp_path)
    try:
        assert server.api_key == "open-sesame-7"
        assert "--api-key" in server.argv
        assert "open-sesame-7" not in " ".join(server.argv)
        (tmp_path / "key").write_text("open-sesame-7\n")
        attached = await start(
            ServerConfig(
                arguments=(),
                launcher="attached",
                url=server.base_url,
                api_key=KeySource(kind="file", place=str(tmp_path / "key")),
            ),
            tmp_path,
        )
        assert attached.effective.version == "0.5.23"
    finally:
        await server.stop()


@pytest.mark.parametrize(
    ("kind", "content", "said"),
    [
        ("env", None, "empty or not there"),
        ("file", None, "No such file"),
        ("file", "", "empty"),
        ("file", "a\nb", "more than one line"),
    ],
)
async def test_a_key_that_is_not_there_says_so(tmp_path, kind, content, said):
    place = tmp_path / "key"
    if content is not None:
        place.write_text(content)
    with pytest.raises(InputError, match=said) as caught:
        await start(stand_in(api_key=KeySource(kind=kind, place=str(place))), tmp_path)
    assert caught.value.hint


async def test_an_admin_key_is_sent_with_the_calls_that_need_it_alone(tmp_path, monkeypatch):
    monkeypatch.setenv("OUR_KEY", "open-sesame-7")
    monkeypatch.setenv("ADMIN_KEY", "open-barley-8")
    keys = {
        "api_key": KeySource(kind="env", place="OUR_KEY"),
        "admin_api_key": KeySource(kind="env", place="ADMIN_KEY"),
    }
    server = await start(stand_in("--state", str(tmp_path), **keys), tmp_path)
    try:
        assert "--admin-api-key" in server.argv
        assert "open-barley-8" not in " ".join(server.argv)
        await server.between_cells()
        url = server.base_url
        for given, told in (
            (keys, []),
            ({"api_key": keys["api_key"]}, [FindingKind.ACCESS_REFUSED]),
        ):
            attached = await start(
                ServerConfig(arguments=(), launcher="attached", url=url, exclusive=True, **given),
                tmp_path,
            )
            await attached.between_cells()
            assert [f.kind for f in attached.findings("c1")] == told
    finally:
        await server.stop()
    text = (tmp_path / "server.log").read_text()
    assert "open-barley-8" not in text
    # The admin key does for nothing else: with it alone the server tells nothing.
    assert server.api_key == "open-sesame-7"


async def test_a_wrapper_that_drops_the_environment_is_found_out(tmp_path):
    script = 'exec env -u NCCL_ALGO NCCL_PROTO=LL "$@"'
    config = ServerConfig(
        arguments=(),
        command=("sh", "-c", script, "wrapper", sys.executable, str(STAND_IN)),
        environment=(("NCCL_ALGO", "Ring"), ("NCCL_PROTO", "Simple"), ("OTHER", "1")),
    )
    server = await start(config, tmp_path)
    await server.stop()
    (finding,) = server.findings("c1")
    assert (finding.kind, finding.severity) == (FindingKind.ENVIRONMENT_LOST, Severity.SUSPECT)
    assert "NCCL_ALGO is not set there, NCCL_PROTO is 'LL' there" in finding.message
    assert "OTHER" not in finding.message


async def test_attaching_to_nothing_says_so(tmp_path):
    config = ServerConfig(arguments=(), launcher="attached", url="http://127.0.0.1:9")
    with pytest.raises(ServerError) as told:
        await start(config, tmp_path)
    assert str(told.value) == (
        "asked to measure the server at http://127.0.0.1:9: no connection to 127.0.0.1:9, "
        "connection refused"
    )
    assert told.value.hint == "Is the URL right, and does the server run?"


async def test_a_command_that_is_not_there_says_so(tmp_path):
    config = ServerConfig(arguments=(), command=("no-such-program",), launcher="local")
    with pytest.raises(ServerError, match="No such file or directory: no-such-program"):
        await start(config, tmp_path)


async def test_a_command_that_lets_go_of_its_server_is_told_what_it_needs(tmp_path):
    config = ServerConfig(
        arguments=(), command=("sh", "-c", "sleep 60 & exit 0", "sh"), launcher="local"
    )
    with pytest.raises(StartError, match="exit status 0 before it was ready") as caught:
        await start(config, tmp_path)
    assert "kind: template" in caught.value.hint


async def test_a_port_of_ones_own_is_refused(tmp_path):
    with pytest.raises(InputError, match="--port"):
        await start(stand_in("--port", "30000"), tmp_path)


async def test_the_simulated_server_starts_like_a_real_one(tmp_path):
    config = ServerConfig(
        arguments=(
            *("--model-path", "moonshotai/Kimi-K2.5", "--tp-size", "8", "--enable-metrics"),
            *("--max-running-requests", "64", "--speculative-algorithm", "EAGLE3"),
            *("--speculative-draft-model-path", "draft", "--speculative-num-steps", "3"),
            *("--speculative-eagle-topk", "1", "--speculative-num-draft-tokens", "4"),
        ),
        launcher="simulated",
        hardware="rtx-pro-6000-x8",
        target_card="kimi-k2.5",
        acceptance=(0.5, 0.25, 0.125),
        gpus=8,
    )
    truth = tmp_path / "truth.jsonl"
    server = await start(config, tmp_path, truth_path=truth)
    try:
        await server.between_cells()
        async with watch(server.base_url, gpus=server.gpu_indices) as points:
            pass
    finally:
        exit_code = await server.stop()
    assert exit_code == 0
    assert server.effective.simulated
    assert dict(server.effective.speculative)["num_draft_tokens"] == 4
    assert server.findings("c1") == ()
    assert server.gpu_indices == ()
    assert points.missing_reason is None
    assert {point.source for point in points} == {"server"}
    assert truth.exists()
