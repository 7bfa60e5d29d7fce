"""Becomes an SGLang server of the lab: `python tests/lab/serve.py --model-path … --device cpu …`.

Takes SGLang's own arguments and passes them on untouched. The process is replaced, so its pid,
signals and exit status are the server's. Exit status 3: the lab isn't built.
"""

import os
import sys
from pathlib import Path

from install import is_built, relative, site_packages, venv_path, venv_python

# A server on a CPU that asks nothing of the network.
REQUIRED = {
    "SGLANG_USE_CPU_ENGINE": "1",
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "CUDA_VISIBLE_DEVICES": "",
}

# What served best on two cores; a value from outside wins.
# With two OpenMP threads a model this small gains nothing on an idle machine, and loses most of
# its speed as soon as anything else runs: threads spin, waiting for one that isn't scheduled.
# torch.compile would spend seconds of the first speculative request on functions of a few lines.
PREFERRED = {"OMP_NUM_THREADS": "1", "TORCHDYNAMO_DISABLE": "1"}

# SGLang imports every model it knows at start. The lab's are Llama, target and EAGLE-3 head alike.
KEPT_MODELS = ("llama", "llama_eagle3", "llama_eagle")


def main() -> int:
    """Find the lab, set the environment, become the server; returns only if there is no lab."""
    venv = venv_path()
    if is_built(venv):
        python = str(venv_python(venv))
        command = [python, "-m", "sglang.launch_server", *sys.argv[1:]]
        os.execve(python, command, serving_environment(venv))
    install = relative(Path(__file__).with_name("install.py"))
    print(
        f"asked: to serve from the lab in {venv}.\n"
        "found: it is not built, or was built from another recipe.\n"
        f"do: python {install}",
        file=sys.stderr,
    )
    return 3


def serving_environment(venv: Path) -> dict[str, str]:
    """This process's environment, made fit for the server."""
    environment = PREFERRED | {"SGLANG_DISABLED_MODEL_ARCHS": unneeded_models(venv)} | os.environ
    # Another environment's packages must not come in between.
    for name in ("PYTHONPATH", "PYTHONHOME"):
        environment.pop(name, None)
    return environment | REQUIRED


def unneeded_models(venv: Path) -> str:
    """The model modules that need not be imported, as SGLang wants them: separated by commas."""
    models = site_packages(venv) / "sglang" / "srt" / "models"
    return ",".join(
        sorted(path.stem for path in models.glob("*.py") if path.stem not in KEPT_MODELS)
    )


if __name__ == "__main__":
    sys.exit(main())
