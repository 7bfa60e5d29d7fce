"""Checks of cases about NCCL's settings by load, and about all-reduces by message size."""

from __future__ import annotations

import csv
import math
import re
from pathlib import Path
from typing import Any

from case_checks import read_json
from case_fields import AnyOf

from tuner.nccl import best_of, crossovers, fastest_by_size, message_bytes, single_best
from tuner.nccl.ranking import choose, compare_rounds

Found = dict[str, Any]

MARGIN = 0.02
"""What the setting in use must be beaten by."""


def check_nccl_by_load(folder: Path) -> Found:
    return by_load(read_json(folder / "input.json"))


def by_load(rows: list[dict[str, Any]]) -> Found:
    """Rows of `{env, tok_s: {load: value, or a list of repeats}}`; an empty env is the default."""
    default = next((place for place, row in enumerate(rows) if not row["env"]), None)
    loads = dict.fromkeys(load for row in rows for load in row["tok_s"])
    bests = {}
    for load in loads:
        values = {place: row["tok_s"].get(load) for place, row in enumerate(rows)}
        bests[load] = best_at(
            {place: value for place, value in values.items() if value is not None}, default
        )
    return {
        "best": {load: best.name for load, best in bests.items()},
        "gain": {load: gain(best) for load, best in bests.items()},
        "single_best_for_all": single_best(bests.values()),
    }


def best_at(values: dict[int, Any], default: int | None) -> Any:
    if not any(isinstance(value, list) for value in values.values()):
        return best_of(values, default=default, margin=MARGIN)
    base = min(values) if default is None else default
    ratios = {
        place: [mine / his for mine, his in zip(repeats, values[base], strict=False)]
        for place, repeats in values.items()
        if place != base
    }
    return choose(compare_rounds(ratios, margin=MARGIN), default=base)


def gain(best: Any) -> AnyOf | float | None:
    """Over the next best; a case may mean over the default."""
    told = [value for value in (best.over_next, best.over_default) if value is not None]
    return AnyOf(told) if told else None


class MessageSizes(Found):
    """`msg_kb_hidden7168_bs1` and its like: worked out for whatever numbers a case names."""

    NAME = re.compile(r"msg_kb_hidden(\d+)_bs(\d+)")

    def __contains__(self, name: object) -> bool:
        return super().__contains__(name) or self.NAME.fullmatch(str(name)) is not None

    def __missing__(self, name: str) -> Found:
        named = self.NAME.fullmatch(name)
        assert named is not None
        return ByTokens(hidden=int(named[1]), batch=int(named[2]))


class ByTokens(Found):
    """`no_spec` and `ndt4` and its like, in KiB."""

    NAME = re.compile(r"no_spec|ndt(\d+)")

    def __contains__(self, name: object) -> bool:
        return name not in {"hidden", "batch"} and self.NAME.fullmatch(str(name)) is not None

    def __missing__(self, name: str) -> float:
        named = self.NAME.fullmatch(name)
        assert named is not None
        tokens = int(named[1] or 1)
        return message_bytes(batch=self["batch"], tokens=tokens, hidden=self["hidden"]) / 1024


def check_allreduce_sizes(folder: Path) -> Found:
    with (folder / "input.csv").open(newline="") as file:
        return by_size(list(csv.DictReader(file)))


def by_size(rows: list[dict[str, str]]) -> Found:
    """Rows of `kb` and a time a transport, `<name>_us`; a blank cell was not measured."""
    names = [name.removesuffix("_us") for name in rows[0] if name.endswith("_us")]
    times = {
        number(row["kb"]): {
            name: float(row[f"{name}_us"]) for name in names if (row[f"{name}_us"] or "").strip()
        }
        for row in rows
    }
    fastest = fastest_by_size(times)
    found = MessageSizes()
    for name in names:
        found[f"{name}_wins_kb"] = [kb for kb, who in fastest.items() if who == name]
    pairs = [[one.below_bytes, one.above_bytes] for one in crossovers(times)]
    # One crossover is a pair, several are a list of pairs, none is null.
    found["crossover_between_kb"] = AnyOf((pairs[0], pairs)) if len(pairs) == 1 else pairs or None
    return found


def number(text: str) -> int | float:
    value = float(text)
    assert math.isfinite(value)
    return int(value) if value.is_integer() else value


CHECKS = {"nccl_by_load": check_nccl_by_load, "allreduce_sizes": check_allreduce_sizes}
