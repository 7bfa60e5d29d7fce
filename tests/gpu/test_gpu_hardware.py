"""What no machine of the project could exercise: see docs/hardware.md."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import bench
from bench import clock, gpu, telemetry

pytestmark = pytest.mark.gpu

SCENARIO = "SPECDYNO_GPU_SCENARIO"
RUN_S = 4 * 3600
"""What a run of the user's own scenario is given."""

WITHIN_S = 0.1
"""Readings come ten times a second: all GPUs must be read within that."""


def test_every_gpu_is_listed_with_what_does_not_change(gpus, report):
    for facts in gpus:
        report.append(repr(facts))
        assert facts.name
        assert facts.uuid
        assert facts.driver


def test_every_gpu_is_read_and_what_it_does_not_tell_is_known(gpus, report):
    for facts in gpus:
        read = dict(gpu.read_gpu(facts.index))
        missing = sorted(name for name, value in read.items() if value is None)
        report.append(f"GPU {facts.index}: {read}")
        report.append(f"GPU {facts.index} does not tell: {', '.join(missing) or 'nothing'}")
        assert len(missing) < len(read), "NVML tells nothing of this GPU"
        if read["power_w"] is not None and read["power_limit_w"] is not None:
            assert 0 < read["power_w"] < 1.5 * read["power_limit_w"]
        if read["memory_used_bytes"] is not None and facts.memory_bytes is not None:
            assert 0 <= read["memory_used_bytes"] <= facts.memory_bytes


def test_counters_count_up_and_are_read_fast_enough(gpus, report):
    first = {facts.index: dict(gpu.read_gpu(facts.index)) for facts in gpus}
    began_ns, rounds = clock.monotonic_ns(), 20
    for _ in range(rounds):
        last = {facts.index: dict(gpu.read_gpu(facts.index)) for facts in gpus}
    seconds = (clock.monotonic_ns() - began_ns) / 1e9 / rounds
    report.append(f"reading {len(gpus)} GPUs takes {seconds * 1e3:.2f} ms")
    counters = ("total_energy_j", "pcie_tx_bytes", "pcie_rx_bytes", "nvlink_tx_bytes")
    for index, before in first.items():
        for name in counters:
            if before[name] is not None and last[index][name] is not None:
                assert last[index][name] >= before[name], (index, name)
    assert seconds < WITHIN_S


async def test_gpus_are_sampled_ten_times_a_second(gpus, report):
    indices = [facts.index for facts in gpus]
    async with telemetry.watch("http://127.0.0.1:9", gpus=indices) as points:
        await asyncio.sleep(3.0)
    per_gpu = sum(p.name == "power_w" for p in points) / len(gpus)
    report.append(f"{per_gpu / 3.0:.1f} samples a second; missing: {points.gpu_missing_reason}")
    assert per_gpu >= 20


def test_nvidia_smi_says_the_same_as_nvml(gpus, report):
    if shutil.which(gpu.NVIDIA_SMI[0]) is None:
        pytest.skip("nvidia-smi is not on the path")
    done = subprocess.run(gpu.NVIDIA_SMI, capture_output=True, text=True, check=True, timeout=60)
    report += ["nvidia-smi:", *done.stdout.splitlines()]
    rows = {row.facts.index: row for row in gpu.parse_nvidia_smi(done.stdout)}
    for facts in gpus:
        told = rows[facts.index].facts
        assert (told.name, told.uuid, told.driver) == (facts.name, facts.uuid, facts.driver)
        if told.power_limit_w is not None and facts.power_limit_w is not None:
            assert told.power_limit_w == pytest.approx(facts.power_limit_w, abs=1)


@pytest.mark.timeout(RUN_S)
def test_a_short_run_against_a_real_sglang(gpus, report):
    scenario = os.environ.get(SCENARIO)
    if not scenario:
        pytest.skip(f"set {SCENARIO} to a scenario of yours (docs/hardware.md shows one)")
    out = Path("results", "test-gpu").resolve()
    command = Path(sys.executable).with_name("bench")
    done = subprocess.run(
        [command, "run", scenario, "--set", "measure.pairs=1", "--out", out, "--json"],
        stdout=subprocess.PIPE,
        text=True,
        timeout=RUN_S,
        check=False,
    )
    report.append(f"`bench run {scenario}` ended with status {done.returncode}")
    report.append(f"the newest folder in {out}, as in: tar czf specdyno-gpu.tar.gz -C {out} .")
    assert done.returncode in {0, 4}, "a server or the machine failed; see above"
    assert json.loads(done.stdout)
    readings = bench.results(out).telemetry()
    of_gpus = readings[readings.source == "gpu"]
    report.append(f"GPU readings stored: {of_gpus.groupby('name').value.count().to_dict()}")
    assert not of_gpus.empty, "the run stored no GPU reading"
