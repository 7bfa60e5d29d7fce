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


MEASURING = "bench"
"""The folder whose code can change a number: a run can be resumed after a change elsewhere."""


@fact
def specdyno() -> dict[str, object]:
    """Our version and, in a git checkout, {tree, dirty, diff_sha256} of the code that measures.

    `tree` is git's id of the folder as committed; commits that leave it alone do not change it.
    """
    facts: dict[str, object] = {"version": version("specdyno"), "tree": None}
    if not _is_checkout():
        return facts
    tree = _git("rev-parse", f"HEAD:{MEASURING}")
    difference = _git("diff", "HEAD", "--", MEASURING)
    dirty = None if difference is None else bool(difference)
    diff_sha256 = hashlib.sha256((difference or "").encode()).hexdigest() if dirty else None
    return {**facts, "tree": tree, "dirty": dirty, "diff_sha256": diff_sha256}


@fact
def commit() -> str | None:
    """The commit of a git checkout; None when installed otherwise."""
    return _git("rev-parse", "HEAD") if _is_checkout() else None


def _is_checkout() -> bool:
    # Only a checkout of ours: in site-packages git would tell of the repository around it, if any.
    return (ROOT / ".git").exists()


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
