"""Facts of the machine: host, processors, memory, GPUs and how they are wired."""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import subprocess
from pathlib import Path

import psutil

from bench.gpu import list_gpus
from bench.provenance.facts import COMMAND_TIMEOUT_S, fact

_HASH_CHARS = 16


@fact
def host() -> str:
    """A hash of the host's name: tells two machines apart without naming either."""
    return _hash(platform.node())


@fact
def kernel() -> str:
    """System and release, e.g. `Linux 6.8.0`."""
    return f"{platform.system()} {platform.release()}"


@fact
def boot_id() -> str:
    """Changes with every boot, and so tells whether two sessions share a monotonic clock."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


@fact
def cpu() -> dict[str, object]:
    """{model, cores (physical), threads, usable_threads (those this process may run on)}."""
    return {
        "model": _cpu_model(),
        "cores": psutil.cpu_count(logical=False),
        "threads": psutil.cpu_count(),
        "usable_threads": len(os.sched_getaffinity(0)),
    }


@fact
def cpu_governor() -> str:
    """The first CPU's frequency governor, e.g. `performance`."""
    path = Path("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")
    return path.read_text().strip()


@fact
def memory_gib() -> int:
    """Memory in whole GiB; the exact figure varies from one boot to the next."""
    total: int = psutil.virtual_memory().total
    return round(total / 2**30)


@fact
def gpus() -> list[dict[str, object]]:
    """A record a GPU, in NVML's order; empty where NVML sees none."""
    return [
        {
            "name": gpu.name,
            "uuid_hash": None if gpu.uuid is None else _hash(gpu.uuid),
            "memory_bytes": gpu.memory_bytes,
            "driver": gpu.driver,
            "power_limit_w": gpu.power_limit_w,
            "sm_clock_max_mhz": gpu.sm_clock_max_mhz,
        }
        for gpu in list_gpus()
    ]


@fact
def topology() -> str | None:
    """How the GPUs are wired, as `nvidia-smi topo -m` shows it; None without nvidia-smi."""
    command = shutil.which("nvidia-smi")
    if command is None:
        return None
    answer = subprocess.run(
        [command, "topo", "-m"],
        capture_output=True,
        check=True,
        text=True,
        timeout=COMMAND_TIMEOUT_S,
    )
    return answer.stdout.strip()


def _cpu_model() -> str | None:
    """From /proc/cpuinfo, which names it `model name` on x86; None elsewhere."""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "model name":
            return value.strip()
    return None


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:_HASH_CHARS]
