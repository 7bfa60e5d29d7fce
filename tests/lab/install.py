"""Builds the lab: a virtual environment with a real SGLang that runs on a plain CPU.

    python tests/lab/install.py           build it unless it is there, print its path
    python tests/lab/install.py --where   print its path; exit status 1 if it isn't built

The environment lies in the user's cache under a name that hashes the recipe, so every checkout
with the same recipe shares one, and a changed recipe never meets an old environment. Needs Python
3.11, since SGLang's wheel does. Exit status 3: the machine cannot have it; standard error says
why.
"""

import argparse
import fcntl
import hashlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

HERE = Path(__file__).resolve().parent
PYTHON = "3.11"
PINS = HERE / "requirements.txt"
PINS_NO_DEPS = HERE / "requirements-no-deps.txt"
KERNELS = HERE / "sgl_kernel"
SHIM = HERE / "torchvision_shim.py"
FREE_GB = 5
FREE_GB_CUDA = 10

# What a server imports on its way up, and the kernels where SGLang looks for them.
CHECK = """
import torch, torchvision, sgl_kernel, sgl_kernel.speculative
torch.ops.sgl_kernel.decode_attention_cpu, torch.ops.sgl_kernel.extend_attention_cpu
import sglang.launch_server
import sglang.srt.entrypoints.http_server
import sglang.srt.managers.scheduler
import sglang.srt.speculative.eagle_worker_v2
import sglang.srt.speculative.ngram_worker
import sglang.srt.models.llama_eagle3
"""


class CannotInstallError(Exception):
    """The lab cannot be built; the message says what was asked, what was found and what to do."""


def main() -> int:
    """Parse, build or look, print the path."""
    parser = argparse.ArgumentParser(description="Builds the lab: a real SGLang on a plain CPU.")
    parser.add_argument("--where", action="store_true", help="only print the path of a built lab")
    asked = parser.parse_args()
    venv = venv_path()
    if not is_built(venv):
        if asked.where:
            say(f"the lab is not built; build it with: python {relative(Path(__file__))}")
            return 1
        # A build that is told to stop must clean up as one that fails does.
        signal.signal(signal.SIGTERM, stop)
        try:
            build(venv)
        except CannotInstallError as error:
            say(str(error))
            return 3
        except KeyboardInterrupt:
            return 130
    print(venv)
    return 0


def venv_path() -> Path:
    """Where this checkout's lab lies, built or not."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "specdyno" / f"lab-{recipe_hash()}"


def is_built(venv: Path) -> bool:
    """A lab gets its name only once it is whole, but the Python below it can be removed later."""
    return venv_python(venv).exists()


def venv_python(venv: Path) -> Path:
    """The environment's interpreter.

    The scripts beside it hold the path they were built under and must not be used: `-m` instead.
    """
    return venv / "bin" / "python"


def site_packages(venv: Path) -> Path:
    """Where the environment keeps its packages."""
    return venv / "lib" / f"python{PYTHON}" / "site-packages"


def recipe_hash() -> str:
    """Twelve hex digits over everything that decides what the environment holds."""
    recipe = hashlib.sha256(PYTHON.encode())
    for path in [
        PINS,
        PINS_NO_DEPS,
        SHIM,
        Path(__file__).resolve(),
        *sorted(KERNELS.glob("*.py")),
    ]:
        recipe.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return recipe.hexdigest()[:12]


def build(venv: Path) -> None:
    """Build beside the final place, check, rename. One process builds, others wait for it."""
    venv.parent.mkdir(parents=True, exist_ok=True)
    with only_one(venv.parent / "lab.lock"):
        if is_built(venv):
            return
        # Whoever left these was killed outright: builders hold the lock that is held here.
        for left_over in venv.parent.glob("lab-*.building"):
            shutil.rmtree(left_over, ignore_errors=True)
        building = venv.with_name(f"{venv.name}.building")
        try:
            fill(building)
            if venv.exists():
                shutil.rmtree(venv)
            building.rename(venv)
        finally:
            shutil.rmtree(building, ignore_errors=True)
    others = sorted(path for path in venv.parent.glob("lab-*") if path != venv and path.is_dir())
    if others:
        say(f"labs of other recipes, yours to remove: {' '.join(map(str, others))}")


def fill(venv: Path) -> None:
    """Everything that goes into the environment, in the order in which it has to."""
    base = base_python()
    demand_space(venv.parent, FREE_GB, "the lab")
    say(f"building the lab in {venv.parent}; this takes a minute or two")
    run([base, "-m", "venv", str(venv)], "make a virtual environment")
    python = str(venv_python(venv))
    pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    torch = next(line for line in PINS.read_text().splitlines() if line.startswith("torch=="))
    # torch alone first: which build it is, and so how big, shows only once it is there.
    run([*pip, torch, "--constraint", str(PINS)], f"install {torch}")
    cuda = run(
        [python, "-c", "import torch; print(torch.version.cuda or '')"], "import torch"
    ).strip()
    if cuda:
        say(f"this torch is a CUDA {cuda} build; it is used with no GPU visible")
        demand_space(venv.parent, FREE_GB_CUDA, f"the rest of a lab with torch for CUDA {cuda}")
    run([*pip, "--requirement", str(PINS)], f"install {relative(PINS)}")
    run(
        [*pip, "--no-deps", "--requirement", str(PINS_NO_DEPS)],
        f"install {relative(PINS_NO_DEPS)}",
    )
    packages = site_packages(venv)
    shutil.copytree(KERNELS, packages / KERNELS.name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(SHIM, packages)
    (packages / "specdyno_lab.pth").write_text(f"import {SHIM.stem}\n")
    say("checking that SGLang can be imported")
    run([python, "-c", CHECK], "import SGLang and the kernels")


def base_python() -> str:
    """A Python 3.11: this one, or the one on PATH."""
    for candidate in (sys.executable, shutil.which(f"python{PYTHON}")):
        if candidate is None:
            continue
        # A launcher of that name may be there without the Python behind it, so ask.
        question = "import sys, ensurepip; print('%d.%d' % sys.version_info[:2])"
        answer = subprocess.run(
            [candidate, "-c", question], capture_output=True, text=True, check=False
        )
        if answer.returncode == 0 and answer.stdout.strip() == PYTHON:
            return candidate
    found = f"{sys.version_info.major}.{sys.version_info.minor}"
    raise CannotInstallError(
        f"the lab needs Python {PYTHON}, for which SGLang's wheel is made.\n"
        f"found: this is Python {found}, and no python{PYTHON} with venv on PATH.\n"
        f"do: install Python {PYTHON}, or run this script with it."
    )


def demand_space(folder: Path, gigabytes: int, purpose: str) -> None:
    """Raise unless so much is free on the disk that holds `folder`."""
    free_gb = shutil.disk_usage(folder).free / 1e9
    if free_gb < gigabytes:
        raise CannotInstallError(
            f"asked: {gigabytes} GB free disk for {purpose}.\n"
            f"found: {free_gb:.1f} GB free under {folder}.\n"
            "do: free some space, or set XDG_CACHE_HOME to a folder on a bigger disk."
        )


def run(command: list[str], purpose: str) -> str:
    """Run a step and return what it printed, or raise with the end of that."""
    environment = {
        name: value
        for name, value in os.environ.items()
        if name not in ("PYTHONPATH", "PYTHONHOME")
    }
    environment |= {
        "CUDA_VISIBLE_DEVICES": "",
        "SGLANG_USE_CPU_ENGINE": "1",
        "PYTHONNOUSERSITE": "1",
    }
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        tail = "\n".join(f"  {line}" for line in (done.stdout + done.stderr).splitlines()[-25:])
        raise CannotInstallError(
            f"asked: {purpose}.\n"
            f"found: exit status {done.returncode}, and at the end of its output\n{tail}\n"
            f"do: see to the cause above and run again: python {relative(Path(__file__))}"
        )
    return done.stdout


@contextmanager
def only_one(lock: Path) -> Iterator[None]:
    """Hold the lock file; its owner's end releases it, however that comes."""
    with lock.open("w") as held:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("another process is building the lab; waiting for it")
            fcntl.flock(held, fcntl.LOCK_EX)
        yield


def relative(path: Path) -> str:
    """The path as one would type it here."""
    return os.path.relpath(path)


def say(message: str) -> None:
    """To standard error: standard output is for the path alone."""
    print(message, file=sys.stderr, flush=True)


def stop(_signal: int, _frame: FrameType | None) -> None:
    """Leave by way of every `finally`."""
    raise SystemExit(128 + signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(main())
