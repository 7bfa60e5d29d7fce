"""The ranking from end to end: on made-up GPUs, through made-up nccl-tests, and on real gloo."""

import asyncio
import contextlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from bench.errors import InputError, MachineError
from bench.scenario import load_scenario
from tuner.nccl import nccl_question, rank_nccl, ranking_json, ranking_text
from tuner.nccl.rank import ranked_by
from tuner.nccl.rounds import measure_rounds, variables_of
from tuner.nccl.settings import DEFAULT
from tuner.nccl.starting import Started, perf_start, torch_start

ROOT = Path(__file__).parents[2]
FAKE = Path(__file__).parent / "fake_nccl"


def scenario(tmp_path, *overrides, algorithms=(None, "Ring", "Tree"), gpus=4):
    """The Kimi scenario on four made-up GPUs, with these values of NCCL_ALGO to rank."""
    tune = {"num_steps": [3], "environment": {"NCCL_ALGO": list(algorithms)}}
    environment = {"PYTHONPATH": str(FAKE), "FAKE_GPUS": str(gpus), "FAKE_PIDS": str(tmp_path)}
    arguments = ["--tp-size 4", "--max-running-requests 64", "--chunked-prefill-size 2048"]
    return load_scenario(
        ROOT / "scenarios" / "kimi.yaml",
        [
            f"server.launcher.resolve={json.dumps([sys.executable])}",
            f"server.environment={json.dumps(environment)}",
            f"server.arguments={json.dumps(arguments)}",
            "loads.concurrency=[1, 64]",
            "workloads.agent-32k.loads.concurrency=[1]",
            f"tune={json.dumps(tune)}",
            *overrides,
        ],
    )


def left_running(folder):
    """Processes that named themselves there and, given time to die, are still alive."""
    named = []
    for path in folder.glob("[0-9]*"):
        with contextlib.suppress(psutil.NoSuchProcess):
            named.append(psutil.Process(int(path.name)))
    alive = psutil.wait_procs(named, timeout=10)[1]
    return [one for one in alive if one.status() != psutil.STATUS_ZOMBIE]


@pytest.fixture(scope="module")
def ranking(tmp_path_factory):
    said = []
    found = rank_nccl(scenario(tmp_path_factory.mktemp("gpus")), rounds=4, say=said.append)
    assert said[0] == "round 1 of 4: 4 starts"
    return found


def test_small_and_large_loads_have_winners_of_their_own(ranking):
    assert {load.load: load.best.name for load in ranking.loads} == {
        "1": "NCCL_ALGO=Ring",
        "64": "NCCL_ALGO=Tree",
        "prefill": "NCCL_ALGO=Tree",
    }
    assert ranking.single_best is None
    assert [one.after for one in ranking.crossovers] == ["NCCL_ALGO=Tree"]
    one = ranking.loads[0].compared[0]
    assert one.low <= one.speedup <= one.high
    assert one.rounds == 4


def test_what_nccl_chose_is_read_of_the_default_and_the_winners_alone(ranking):
    chosen = {one.setting: one for one in ranking.chosen}
    assert set(chosen) == {DEFAULT, "NCCL_ALGO=Ring", "NCCL_ALGO=Tree"}
    tree = chosen["NCCL_ALGO=Tree"]
    assert {choice.label for choice in tree.choices} == {"Tree/LL, 4 channels"}
    assert tree.not_taken == ()


def test_its_text_tells_the_whole_story(ranking):
    text = ranking_text(ranking)
    for part in (
        "verify               56 KiB  ×122",
        "NCCL_NVLS_ENABLE=0  (off unless",
        "4 rounds, 16 starts",
        "load 1: NCCL_ALGO=Ring (surely faster than the default in 4 rounds)",
        "The default against itself:",
        "No setting is the best of all loads and drafts",
        "NCCL 2.30.1",
        "NCCL_ALGO=Tree: 14 - 28672 KiB Tree/LL, 4 channels",
    ):
        assert part in text, part


def test_many_drafts_are_told_together(tmp_path):
    tune = {"num_steps": [1, 2, 3, 4, 5], "environment": {"NCCL_ALGO": [None, "Ring"]}}
    found = rank_nccl(scenario(tmp_path, f"tune={json.dumps(tune)}"), rounds=2)
    text = ranking_text(found)
    assert "load 1, 6 ways to draft" in text
    assert re.search(r"verify +28 - 84 KiB  nccl", text)
    assert "EAGLE3 4-1-5, EAGLE3 5-1-6" in text
    assert len(found.loads[0].drafts) == 6


def test_its_json_is_strict_and_holds_the_same(ranking):
    told = json.loads(json.dumps(ranking_json(ranking), allow_nan=False))
    assert (told["loads"][0]["load"], told["loads"][0]["best"]) == ("1", "NCCL_ALGO=Ring")
    assert told["single_best_for_all"] is None
    assert told["ranked"] is True
    assert told["starts"] == 16
    assert told["messages"][1]["messages"][0]["bytes"] == 57344


def test_settings_that_crash_die_or_add_wrongly_do_not_end_the_ranking(tmp_path):
    bad = ("Crash", "Wrong", "Die")
    loaded = scenario(tmp_path, algorithms=(None, "Ring", *bad))
    found = rank_nccl(loaded, rounds=2)
    failures = dict(found.measured.failures)
    told = {name: failures[f"NCCL_ALGO={name}"] for name in bad}
    assert all(why.startswith("failed twice: ") for why in told.values())
    assert "ncclInvalidUsage" in told["Crash"]
    assert "no such algorithm" in told["Crash"]
    assert "wrong sums at 14336 bytes" in told["Wrong"]
    assert "rank 1 ended by signal 11" in told["Die"]
    assert {one.setting for one in found.loads[0].compared} == {"NCCL_ALGO=Ring"}
    assert "NCCL_ALGO=Die: failed twice" in ranking_text(found)
    assert not left_running(tmp_path)


def hanging(tmp_path):
    environment = {"PYTHONPATH": str(FAKE), "FAKE_GPUS": "2", "FAKE_PIDS": str(tmp_path)}
    return {**environment, "NCCL_ALGO": "Hang"}


def test_ranks_that_hang_are_killed_and_told(tmp_path):
    start = torch_start(
        [sys.executable], backend="nccl", ranks=2, sizes=[64], element_bytes=2, timeout_s=3
    )
    started = asyncio.run(start(hanging(tmp_path), "times"))
    assert started.failure == "no end within 3 s: a hang"
    assert not left_running(tmp_path)


def test_nccl_tests_that_hang_are_killed_and_told(tmp_path):
    program = str(FAKE / "all_reduce_perf")
    start = perf_start(program, ranks=2, sizes=[64], element_bytes=2, timeout_s=1)
    started = asyncio.run(start(hanging(tmp_path), "times"))
    assert started.failure == "no end within 1 s: a hang; its processes were killed"


def test_a_start_that_cannot_end_itself_is_killed_with_all_its_processes(tmp_path):
    """Its own alarm is taken from it, as where the script's Python itself hangs."""
    script = (
        "import os, sys, time\n"
        "if os.fork() == 0:\n"
        "    time.sleep(600)\n"
        f"open(os.path.join({str(tmp_path)!r}, str(os.getpid())), 'w').close()\n"
        "time.sleep(600)\n"
    )
    program = tmp_path / "python"
    program.write_text(f"#!{sys.executable}\n{script}")
    program.chmod(0o755)
    start = torch_start(
        [str(program)], backend="gloo", ranks=2, sizes=[64], element_bytes=2, timeout_s=-9.0
    )
    started = asyncio.run(start({}, "times"))
    assert "its processes were killed" in started.failure
    assert not left_running(tmp_path)


def test_without_enough_gpus_gloo_proves_the_way_and_nothing_is_ranked(tmp_path):
    found = rank_nccl(scenario(tmp_path, gpus=1), rounds=4)
    assert found.backend == "gloo"
    assert found.loads == ()
    text = ranking_text(found)
    assert "No ranking: 4 GPUs are wanted, and PyTorch sees 1. 3 of 3 starts" in text
    assert "µs" not in text
    told = ranking_json(found)
    assert (told["ranked"], told["loads"]) == (False, [])


def test_where_no_message_goes_through_nccl_nothing_is_started(tmp_path):
    loaded = scenario(tmp_path, "sim.hardware=h200-x8")
    found = rank_nccl(loaded)
    assert found.measured is None
    assert "nothing was measured" in ranking_text(found)
    assert "--disable-custom-all-reduce" in ranking_text(found)
    assert not list(tmp_path.iterdir())


def test_a_default_that_does_not_run_is_an_error(tmp_path):
    with pytest.raises(MachineError, match=r"failed 2 times: .*ncclInvalidUsage"):
        rank_nccl(scenario(tmp_path, algorithms=("Crash", "Ring")), rounds=2)


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ('server.launcher.resolve=["/nowhere/python"]', "No such file"),
        (f"server.launcher.resolve={json.dumps([sys.executable, '-S'])}", "torch cannot be"),
    ],
)
def test_a_python_without_torch_is_told(tmp_path, override, said):
    loaded = scenario(tmp_path, override, 'server.environment={"PYTHONPATH": "/nowhere"}')
    with pytest.raises(MachineError, match=said):
        rank_nccl(loaded)


def test_a_scenario_that_names_no_python_needs_nccl_tests(tmp_path, monkeypatch):
    loaded = scenario(tmp_path, "server.launcher.resolve=[]")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InputError, match="names no Python"):
        rank_nccl(loaded)
    monkeypatch.setenv("PATH", f"{FAKE}:/usr/bin:/bin")
    found = rank_nccl(loaded, rounds=2)
    assert "all_reduce_perf" in found.tool


def test_a_server_elsewhere_is_not_ranked_here(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", f"{FAKE}:/usr/bin:/bin")
    launcher = {
        "kind": "ssh",
        "host": "gpu-7",
        "command": ["python3", "-m", "sglang.launch_server"],
    }
    loaded = scenario(tmp_path, f"server.launcher={json.dumps(launcher)}")
    with pytest.raises(InputError, match="another machine"):
        rank_nccl(loaded)


def test_ranks_on_several_machines_are_not_ranked_on_one(tmp_path):
    arguments = ["--tp-size 16", "--nnodes 2", "--max-running-requests 64"]
    found = rank_nccl(scenario(tmp_path, f"server.arguments={json.dumps(arguments)}"))
    assert "on 2 machines" in ranking_text(found)
    assert "--disable-custom-all-reduce and" not in ranking_text(found)


def test_a_ranking_that_is_stopped_leaves_nothing_running(tmp_path):
    async def stopped():
        start = torch_start(
            [sys.executable], backend="nccl", ranks=2, sizes=[64], element_bytes=2, timeout_s=60
        )
        task = asyncio.create_task(start(hanging(tmp_path), "times"))
        while not list(tmp_path.glob("[0-9]*")):  # noqa: ASYNC110  # another process's file
            await asyncio.sleep(0.02)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(stopped())
    assert list(tmp_path.iterdir())
    assert not left_running(tmp_path)


def test_no_rounds_are_refused(tmp_path):
    with pytest.raises(InputError, match="0 rounds"):
        rank_nccl(scenario(tmp_path), rounds=0)


def test_one_round_names_no_winner(tmp_path):
    found = rank_nccl(scenario(tmp_path), rounds=1)
    assert {load.best.name for load in found.loads} == {DEFAULT}
    assert "no verdict" in found.loads[0].reason
    assert "Keep the default" in ranking_text(found)


# ------------------------------------------------------------------------------------- nccl-tests


def test_nccl_tests_rank_the_same(tmp_path):
    loaded = scenario(tmp_path, algorithms=(None, "Ring", "Wrong", "Crash"))
    found = rank_nccl(loaded, rounds=2, nccl_tests=FAKE)
    assert found.loads[0].compared[0].setting == "NCCL_ALGO=Ring"
    assert [one.setting for one in found.loads[0].compared] == ["NCCL_ALGO=Ring"]
    failures = dict(found.measured.failures)
    assert "1 wrong elements" in failures["NCCL_ALGO=Wrong"]
    assert "Test NCCL failure" in failures["NCCL_ALGO=Crash"]
    [default, *_] = found.chosen
    assert default.choices[0].label == "Ring/LL"


def test_a_path_without_nccl_tests_is_refused(tmp_path):
    with pytest.raises(InputError, match="no program to run"):
        rank_nccl(scenario(tmp_path), nccl_tests=tmp_path)


# -------------------------------------------------------------------------------------- the rounds


def test_a_setting_runs_in_the_environment_that_sglang_would_make(tmp_path):
    loaded = scenario(tmp_path, 'server.environment={"NCCL_DEBUG": "WARN", "MINE": "1"}')
    question = nccl_question(loaded, {"NCCL_P2P_LEVEL": "SYS", "HOME": "/x"})
    ring = question.choice.others[0]
    assert variables_of(question, ring) == {
        "CUDA_DEVICE_MAX_CONNECTIONS": "8",
        "MINE": "1",
        "NCCL_ALGO": "Ring",
        "NCCL_CUMEM_ENABLE": "0",
        "NCCL_DEBUG": "WARN",
        "NCCL_GRAPH_REGISTER": "0",
        "NCCL_NVLS_ENABLE": "0",
        "NCCL_P2P_LEVEL": "SYS",
    }
    assert "NCCL_ALGO" not in variables_of(question, question.choice.default)


def fake_start(times, calls):
    async def start(environment, purpose):
        name = environment.get("NCCL_ALGO", DEFAULT)
        calls.append((name, purpose))
        us = times[name]
        if callable(us):
            us = us(sum(one == name for one, _ in calls))
        return us if isinstance(us, Started) else Started(us=us)

    return start


def rounds_by(tmp_path, times, *, rounds=4):
    question = nccl_question(scenario(tmp_path, algorithms=(None, *(set(times) - {DEFAULT}))), {})
    calls = []
    start = fake_start(times, calls)
    measured = asyncio.run(measure_rounds(start, question, rounds=rounds, say=lambda _line: None))
    return measured, [name for name, _ in calls], question


def test_every_round_begins_and_ends_with_the_default(tmp_path):
    measured, names, _ = rounds_by(tmp_path, {DEFAULT: {1: 1.0}, "A": {1: 1.0}, "B": {1: 1.0}})
    assert measured.starts == len(names) == 16
    for begin in range(0, 16, 4):
        assert names[begin] == names[begin + 3] == DEFAULT
        assert set(names[begin + 1 : begin + 3]) == {"A", "B"}


def test_what_is_hopeless_is_left_after_two_rounds(tmp_path):
    times = {DEFAULT: {1: 1.0, 2: 1.0}, "slow": {1: 1.2, 2: 1.1}, "mixed": {1: 1.5, 2: 1.0}}
    measured, names, _ = rounds_by(tmp_path, times)
    assert names.count("slow") == 2
    assert names.count("mixed") == 4
    assert [name for name, _ in measured.left] == ["NCCL_ALGO=slow"]


def test_when_nobody_is_left_the_rounds_end(tmp_path):
    measured, _, _ = rounds_by(tmp_path, {DEFAULT: {1: 1.0}, "slow": {1: 2.0}})
    assert len(measured.rounds) == 2


def test_one_failure_costs_a_round_and_a_second_ends_it(tmp_path):
    def once(attempt):
        return Started(failure="busy") if attempt == 1 else {1: 1.0}

    times = {DEFAULT: {1: 1.0}, "once": once, "never": Started(failure="no")}
    measured, names, _ = rounds_by(tmp_path, times)
    assert names.count("once") == 4
    assert names.count("never") == 2
    assert dict(measured.failures) == {
        "NCCL_ALGO=once": "failed once: busy",
        "NCCL_ALGO=never": "failed twice: no",
    }


def test_a_log_without_choices_says_so(tmp_path):
    sizes = {
        message.message_bytes
        for step in nccl_question(scenario(tmp_path), {}).steps
        for message in step.step.messages
    }
    question = nccl_question(scenario(tmp_path), {})
    start = fake_start(dict.fromkeys((DEFAULT, "Ring", "Tree"), dict.fromkeys(sizes, 1.0)), [])
    found = asyncio.run(ranked_by(start, question, rounds=2, tool="a test"))
    assert found.chosen[0].failure is not None
    assert "its version may not print them" in ranking_text(found)
    assert {load.best.name for load in found.loads} == {DEFAULT}


# -------------------------------------------------------------------------------------- real gloo


@pytest.mark.sglang
@pytest.mark.timeout(300)
def test_real_gloo_goes_the_whole_way():
    install = ROOT / "tests" / "lab" / "install.py"
    where = subprocess.run([sys.executable, install, "--where"], capture_output=True, check=False)
    if where.returncode != 0:
        message = "the lab with the real SGLang is not installed; do: make lab"
        if os.environ.get("CI", "").lower() in {"true", "1"} or (
            os.environ.get("SPECDYNO_LAB") == "require"
        ):
            pytest.fail(message, pytrace=False)
        pytest.skip(message)
    found = rank_nccl(load_scenario(ROOT / "scenarios" / "lab.yaml"))
    assert found.backend == "gloo"
    assert found.measured.failures == ()
    [only] = found.measured.rounds
    assert len(only.default) == 2
    assert len(only.settings) == 1
    assert all(us > 0 for us in only.default[0].values())
    assert "No ranking: the scenario's server runs on a CPU" in ranking_text(found)
