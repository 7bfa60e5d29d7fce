"""Checks of cases about SGLang's arguments."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from case_checks import read_json

from bench.sglang.arguments import (
    SUPPORTED,
    Known,
    ModelFacts,
    Rejection,
    attention_of,
    effective_speculative,
    known_options,
    option_of,
    parse_arguments,
)

NAMES = {"draft": "speculative_draft_model_path", "tp": "tp_size", "dp": "dp_size"}
RANKS = {"enable_dp_attention": ("--dp-size", "8")}  # with one rank it would be off


def command_line(args: dict[str, Any]) -> list[str]:
    known = {option.dest for option in known_options()}
    words: list[str] = []
    for name, value in args.items():
        if name == "model_arch" or value is None or value is False:
            continue
        dest = NAMES.get(name, name)
        option = option_of(dest if dest in known else f"speculative_{dest}")
        words += [option] if value is True else [option, str(value)]
        if name in RANKS and "dp_size" not in args:
            words += RANKS[name]
    return words


def check_spec_args(folder: Path) -> list[dict[str, Any]]:
    return [effective(entry) for entry in read_json(folder / "input.json")]


def effective(entry: dict[str, Any]) -> dict[str, Any]:
    architecture = entry["args"].get("model_arch")
    version = entry["version"]
    known = Known(
        version=version if version[:1] == "0" else SUPPORTED,  # a branch is nearest to the newest
        target=ModelFacts(architecture=architecture, attention=attention_of(architecture)),
        environment=entry["env"],
    )
    found = effective_speculative(parse_arguments(command_line(entry["args"])), known)
    if isinstance(found, Rejection):
        return {"valid": False, "effective": None}
    names = ("num_steps", "eagle_topk", "num_draft_tokens")
    return {"valid": True, "effective": {name: getattr(found, name) for name in names}}


CHECKS = {"spec_args": check_spec_args}
