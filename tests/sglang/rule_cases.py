"""The cases of rule_cases.yaml as command lines."""

from pathlib import Path

import yaml

_DATA = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))
CASES = _DATA["cases"]
CONFIGS = _DATA["models"]


def name_of(case):
    parts = (case["rule"], case.get("gpu"), case.get("target"), case["arguments"])
    return " ".join(part for part in (*parts, case.get("running")) if part)


def command_line(case, folder=""):
    """What the server is started with; models lie in `folder`."""
    words = ["--model-path", f"{folder}{case.get('target', 'llama')}"]
    words += ["--device", "cpu" if case.get("gpu", "cpu") == "cpu" else "cuda"]
    if case.get("running") != "unset":
        words += ["--max-running-requests", "64"]
    given = case["arguments"].split()
    if given and not given[0].startswith("--"):
        words += ["--speculative-algorithm", given.pop(0)]
        for option in ("num-steps", "eagle-topk", "num-draft-tokens"):
            if given and not given[0].startswith("--"):
                number = given.pop(0)
                words += [] if number == "-" else [f"--speculative-{option}", number]
    if "draft" in case:
        words += ["--speculative-draft-model-path", f"{folder}{case['draft']}"]
    return [*words, *given]
