"""Facts of the software: our own code, Python, packages, the environment."""

from __future__ import annotations

import asyncio
import hashlib
import os
import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from bench.provenance.facts import COMMAND_TIMEOUT_S, fact
from bench.provenance.redaction import redact_environment

PACKAGES = (
    # what measures
    "aiohttp",
    "msgspec",
    "numpy",
    "pandas",
    "pyarrow",
    "scipy",
    "tokenizers",
    "uvloop",
    # what is measured, where it is installed beside us
    "flashinfer-python",
    "nvidia-cuda-runtime-cu12",
    "nvidia-nccl-cu12",
    "nvidia-nccl-cu13",
    "sgl-kernel",
    "sglang",
    "torch",
    "transformers",
    "triton",
)

VARIABLES = (
    "CUDA_",
    "FLASHINFER_",
    "KMP_",
    "MKL_",
    "NCCL_",
    "OMP_",
    "PYTORCH_",
    "SGLANG_",
    "SGL_",
    "TORCH_",
    "TRITON_",
)
"""Beginnings of the names of environment variables that can change what an engine does."""


ROOT = Path(__file__).parents[2]
"""The folder that holds the package: a checkout, or site-packages."""


@fact
def specdyno() -> dict[str, object]:
    """Our version and, in a git checkout, {commit, dirty, diff_sha256}: which code it was."""
    facts: dict[str, object] = {"version": version("specdyno"), "commit": None}
    # Only a checkout of ours: in site-packages git would tell of the repository around it, if any.
    if not (ROOT / ".git").exists():
        return facts
    commit = _git("rev-parse", "HEAD")
    difference = _git("diff", "HEAD")
    dirty = None if difference is None else bool(difference)
    diff_sha256 = hashlib.sha256((difference or "").encode()).hexdigest() if dirty else None
    return {**facts, "commit": commit, "dirty": dirty, "diff_sha256": diff_sha256}


@fact
def python() -> str:
    """Implementation and version, e.g. `CPython 3.11.9`."""
    return f"{platform.python_implementation()} {platform.python_version()}"


@fact
def packages() -> dict[str, str]:
    """Versions of those of `PACKAGES` that are installed in this environment.

    A server that is started with another Python has its own; what it says of itself is stored with
    its launch.
    """
    found = {}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


@fact
def event_loop() -> str | None:
    """Module of the running event loop (`uvloop`, `asyncio.unix_events`); None outside of one."""
    try:
        return type(asyncio.get_running_loop()).__module__
    except RuntimeError:
        return None


@fact
def environment() -> dict[str, str]:
    """The variables of `VARIABLES` that are set, secrets redacted."""
    return redact_environment(
        {name: value for name, value in os.environ.items() if name.startswith(VARIABLES)}
    )


def _git(*arguments: str) -> str | None:
    answer = subprocess.run(
        ["git", "-C", str(ROOT), *arguments],
        capture_output=True,
        check=False,
        env={**os.environ, "GIT_OPTIONAL_LOCKS": "0"},
        timeout=COMMAND_TIMEOUT_S,
    )
    return answer.stdout.decode(errors="replace").strip() if answer.returncode == 0 else None
