"""The fingerprint tells what it can, and never stands in the way of a run."""

import asyncio
import json
import subprocess
from types import SimpleNamespace

import pytest

from bench.provenance import fingerprint, machine, software
from bench.provenance.facts import fact

GPU = SimpleNamespace(
    name="NVIDIA H200",
    uuid="GPU-12345678-aaaa",
    memory_bytes=150_000_000_000,
    driver="575.57",
    power_limit_w=700.0,
    sm_clock_max_mhz=1980,
)


def test_it_is_plain_json_of_what_can_change_a_number_and_the_rest():
    told = fingerprint()
    assert json.loads(json.dumps(told, allow_nan=False)) == told
    assert list(told) == ["identity", "context"]
    identity = told["identity"]
    assert identity["python"].startswith("CPython 3.")
    assert identity["packages"]["pyarrow"]
    assert identity["cpu"]["threads"] >= 1
    assert identity["memory_gib"] >= 1
    assert identity["kernel"].startswith("Linux ")


def test_it_is_the_same_when_asked_again():
    assert fingerprint()["identity"] == fingerprint()["identity"]


def test_every_fact_may_fail_and_the_rest_is_told(monkeypatch):
    def broken(*_, **__):
        raise RuntimeError("no such luck")

    for module, name in (
        (machine, "list_gpus"),
        (machine.psutil, "cpu_count"),
        (machine.psutil, "virtual_memory"),
        (machine.platform, "node"),
        (machine.platform, "release"),
        (machine.Path, "read_text"),
        (software.platform, "python_version"),
        (software, "version"),
        (software, "redact_environment"),
        (software.subprocess, "run"),
    ):
        monkeypatch.setattr(module, name, broken)
    told = fingerprint()
    assert set(told["identity"].values()) == {None}
    assert set(told["context"].values()) == {None}


def test_a_fact_that_fails_is_none_and_keeps_its_name():
    @fact
    def answer(divisor: int) -> float:
        """Tells."""
        return 42 / divisor

    assert (answer(1), answer(0), answer.__doc__) == (42.0, None, "Tells.")


def test_gpus_are_told_without_their_serial_identity(monkeypatch):
    monkeypatch.setattr(
        machine, "list_gpus", lambda: (GPU, SimpleNamespace(**vars(GPU) | {"uuid": None}))
    )
    first, second = machine.gpus()
    assert (first["name"], first["driver"], first["power_limit_w"]) == (
        "NVIDIA H200",
        "575.57",
        700.0,
    )
    assert GPU.uuid not in str(first)
    assert len(first["uuid_hash"]) == 16
    assert second["uuid_hash"] is None


def test_two_hosts_are_told_apart_and_neither_is_named(monkeypatch):
    monkeypatch.setattr(machine.platform, "node", lambda: "box-a")
    first = machine.host()
    monkeypatch.setattr(machine.platform, "node", lambda: "box-b")
    assert first != machine.host()
    assert "box" not in first


def test_the_environment_has_the_allowed_variables_only(monkeypatch):
    monkeypatch.setattr(
        software.os,
        "environ",
        {
            "NCCL_ALGO": "Ring",
            "HOME": "/root",
            "SGLANG_API_KEY": "abc",
            "OMP_NUM_THREADS": "4",
            "MY_NCCL_X": "1",
        },
    )
    assert software.environment() == {
        "NCCL_ALGO": "Ring",
        "OMP_NUM_THREADS": "4",
        "SGLANG_API_KEY": "[redacted]",
    }


def test_the_event_loop_is_named_inside_one_only():
    async def inside():
        return software.event_loop()

    assert software.event_loop() is None
    assert asyncio.run(inside()).startswith("asyncio")


def test_topology_is_told_where_there_is_a_tool_and_in_time(monkeypatch):
    monkeypatch.setattr(machine.shutil, "which", lambda _: None)
    assert machine.topology() is None
    monkeypatch.setattr(machine.shutil, "which", lambda _: "/bin/nvidia-smi")
    monkeypatch.setattr(
        machine.subprocess, "run", lambda *_, **__: SimpleNamespace(stdout="GPU0 X\n")
    )
    assert machine.topology() == "GPU0 X"

    def too_slow(*_, timeout, **__):
        raise subprocess.TimeoutExpired("nvidia-smi", timeout)

    monkeypatch.setattr(machine.subprocess, "run", too_slow)
    assert machine.topology() is None


# -------------------------------------------------------------------------------------------- git


def git(folder, *arguments):
    identity = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
    done = subprocess.run(
        ["git", "-C", str(folder), *identity, *arguments],
        check=True,
        capture_output=True,
        text=True,
    )
    return done.stdout.strip()


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    git(tmp_path, "init", "-q")
    (tmp_path / "bench").mkdir()
    (tmp_path / "bench" / "code.py").write_text("one\n")
    git(tmp_path, "add", "bench")
    git(tmp_path, "commit", "-q", "-m", "first")
    monkeypatch.setattr(software, "ROOT", tmp_path)
    return tmp_path


def test_a_checkout_tells_its_commit(checkout):
    assert software.commit() == git(checkout, "rev-parse", "HEAD")
    told = software.specdyno()
    assert told["tree"] == git(checkout, "rev-parse", "HEAD:bench")
    assert (told["dirty"], told["diff_sha256"]) == (False, None)


def test_what_measures_nothing_changes_nothing(checkout):
    before = software.specdyno()
    (checkout / "README.md").write_text("words\n")
    git(checkout, "add", "README.md")
    assert software.specdyno() == before
    git(checkout, "commit", "-q", "-m", "second")
    assert software.specdyno() == before


def test_changed_code_is_dirty_and_one_change_differs_from_another(checkout):
    (checkout / "bench" / "code.py").write_text("two\n")
    first = software.specdyno()
    (checkout / "bench" / "code.py").write_text("three\n")
    second = software.specdyno()
    assert first["dirty"]
    assert second["dirty"]
    assert first["diff_sha256"] != second["diff_sha256"]


def test_an_installed_package_does_not_take_the_repository_around_it_for_ours(
    checkout, monkeypatch
):
    installed = checkout / "venv" / "site-packages"
    installed.mkdir(parents=True)
    monkeypatch.setattr(software, "ROOT", installed)
    assert software.specdyno() == {"version": software.version("specdyno"), "tree": None}
    assert software.commit() is None
