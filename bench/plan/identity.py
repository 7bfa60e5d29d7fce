"""Hashes that name cells, servers and requests; equal on every machine and in every process."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bench.model import Cell, ServerConfig

FORMAT = 1  # raised when what is hashed changes: then old and new cells are not the same
_ID_CHARS = 16
# A workload's settings that change what is kept and not what is measured.
_NOT_MEASURED = ("store_text",)
# Keys that came later: ids of servers without them are what they were.
_ONLY_WHERE_GIVEN = ("template", "exclusive", "worker_urls", "faults")
# Time-outs whose passing changes a cell's numbers; the others end launches.
_MEASURED_TIMEOUTS = ("request_s", "connect_s", "drain_s")


def request_seed(seed: int, workload: str, index: int) -> int:
    """The sampling seed of a request: 31 bits of a hash, the same in every arm and pair.

    Args:
        seed: The scenario's seed.
        workload: The workload's name.
        index: The request's place in the cell's order, from 0, warm-up included.
    """
    return stable_int31("request", seed, workload, index)


def simulation_seed(seed: int, arm: str, pair: int) -> int:
    """The seed of one simulated launch: launches differ from one another as real ones do."""
    return stable_int31("simulation", seed, arm, pair)


def stable_int31(*parts: str | int) -> int:
    """A hash of texts and numbers, from 0 to 2^31 - 1."""
    return int.from_bytes(hashlib.sha256(_canonical(parts)).digest()[:4], "big") & 0x7FFF_FFFF


def server_key(server: ServerConfig) -> str:
    """Hash of all that makes a server; equal keys need no restart."""
    return _hash(_facts(server))


def with_ids(cell: Cell, *, asked: ServerConfig, speed: int) -> Cell:
    """The cell with its `cell_id` and `comparison_key`.

    Args:
        cell: The cell; the ids it carries are not looked at.
        asked: The arm's server as the scenario writes it, paths not resolved: a checkout elsewhere
            asks the same.
        speed: The clock's speed, which a simulation's numbers depend on.
    """
    server = _facts(asked)
    if asked.launcher != "simulated":  # cards only size the work of a real cell
        server |= {"hardware": None, "target_card": None}
    workload = asdict(cell.workload)
    for key in _NOT_MEASURED:
        del workload[key]
    timeouts = asdict(cell.timeouts)
    compared = {
        "format": FORMAT,
        "launcher": asked.launcher,
        "speed": speed,
        "gpus": asked.gpus,
        "model": _option_values(asked, "--model-path", "--revision"),
        "workload": workload,
        "load": asdict(cell.load),
        "requests": cell.requests,
        "warmup_requests": cell.warmup_requests,
        "steady_s": cell.steady_s,
        "seed": cell.seed,
        "slo": asdict(cell.slo),
        "timeouts": {key: timeouts[key] for key in _MEASURED_TIMEOUTS},
    }
    whole = {**compared, "arm": cell.arm, "pair": cell.pair, "server": server}
    return replace(cell, cell_id=_hash(whole), comparison_key=_hash(compared))


def _facts(server: ServerConfig) -> dict[str, object]:
    """What a server is, as plain data.

    Where its keys are read from changes nothing, nor who is asked about its arguments.
    """
    facts = asdict(server)
    del facts["api_key"], facts["admin_api_key"], facts["resolve"]
    for name in _ONLY_WHERE_GIVEN:
        if not facts[name]:
            del facts[name]
    return facts


def _option_values(server: ServerConfig, *names: str) -> list[str]:
    pairs = zip(server.arguments, server.arguments[1:], strict=False)
    return [value for name, value in pairs if name in names]


def _hash(value: object) -> str:
    return hashlib.sha256(_canonical(value)).hexdigest()[:_ID_CHARS]


def _canonical(value: object) -> bytes:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return text.encode("ascii")
