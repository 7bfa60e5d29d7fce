"""The time of an all-reduce by message size, path, ranks and NCCL's settings.

A card's own table (`HardwareCard.allreduce_us`) is of its default path over all its GPUs: measured
or fitted. Everything else is told relative to it: the table times what the models below say of the
asked path, ranks and settings over what they say of the default. The models:

- custom: SGLang's own kernels. One shot: every rank reads all the others' buffers; two shots from
  512 KiB on (4 GPUs) or 256 KiB (more): reduce-scatter and all-gather. Source: sgl-kernel's
  custom_all_reduce, SGLang 0.5.23.
- fused: FlashInfer's all-reduce with the residual's addition and the norm in the same kernel: one
  shot, and one kernel less.
- nvls: NCCL with the reduction in NVSwitch.
- nccl: NCCL's cost model, `latency + bytes / bandwidth`, for LL, LL128 and Simple over rings and
  trees; of those not excluded it takes the one that the model says is fastest, as NCCL does.
  Source: NCCL's src/graph/tuning.cc; "Demystifying NCCL", arXiv 2507.04786.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from bench.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.physics.cards import AllreducePath, HardwareCard, Links

Algorithm = Literal["ring", "tree"]
Protocol = Literal["LL", "LL128", "Simple"]

ALGORITHMS: tuple[Algorithm, ...] = ("ring", "tree")
PROTOCOLS: tuple[Protocol, ...] = ("LL", "LL128", "Simple")
# Latency in µs: of the start, and of each of the 2·(ranks - 1) hops (tuning.cc). NCCL gives the
# tree's Simple no start of its own: it takes the ring's.
_BASE_US = {
    "ring": {"LL": 6.6, "LL128": 14.0, "Simple": 8.4},
    "tree": {"LL": 6.8, "LL128": 14.0, "Simple": 8.4},
}
_HOP_US = {
    "nvlink": {
        "ring": {"LL": 0.6, "LL128": 1.9, "Simple": 3.4},
        "tree": {"LL": 0.6, "LL128": 1.25, "Simple": 4.0},
    },
    "pcie": {
        "ring": {"LL": 1.0, "LL128": 2.5, "Simple": 5.7},
        "tree": {"LL": 1.0, "LL128": 1.9, "Simple": 4.0},
    },
}
# The share of the bandwidth a protocol's payload gets: LL sends a flag with each 4 bytes, LL128
# with each 120. A tree moves 0.92 of what a ring does.
_PAYLOAD = {"LL": 0.5, "LL128": 120 / 128, "Simple": 1.0}
_TREE = 0.92
_NVLS_US = 25.0  # a constant of NCCL's model, for its only protocol, Simple
_SAVED_KERNEL_US = 2.5  # the add and norm that the fused kernel makes unnecessary
_TWO_SHOT_BYTES = {2: math.inf, 4: 512 * 1024}
_TWO_SHOT_BYTES_MORE = 256 * 1024
# Above this SGLang leaves it to NCCL: the default of SGLANG_CUSTOM_ALL_REDUCE_V2_MAX_SIZE_KB,
# and _MAX_CAR_SIZE of the kernels that run without NVLink.
_CUSTOM_MOST_BYTES = {"nvlink": 16 * 1024 * 1024, "pcie": 8 * 1024 * 1024}
_TWO_SHOT_SHARE = 1.6  # of the latency: two exchanges with barriers in place of one


@dataclass(frozen=True, slots=True, kw_only=True)
class Communication:
    """What is asked of the all-reduces; None everywhere: the node's defaults.

    Attributes:
        path: custom, fused, nvls or nccl.
        nccl_algorithms: Those NCCL may use (NCCL_ALGO).
        nccl_protocols: Those NCCL may use (NCCL_PROTO).
        nccl_channels: The channels it opens (NCCL_MIN_NCHANNELS = NCCL_MAX_NCHANNELS).
    """

    path: AllreducePath | None = None
    nccl_algorithms: tuple[Algorithm, ...] = ALGORITHMS
    nccl_protocols: tuple[Protocol, ...] = PROTOCOLS
    nccl_channels: int | None = None


DEFAULT = Communication()


def allreduce_us(hardware: HardwareCard, message_bytes: float, ranks: int | None = None) -> float:
    """Microseconds of one all-reduce on the node's default path.

    Between the card's sizes on a log-log line; below the smallest its time holds (latency); above
    the largest the last slope goes on (bandwidth).

    Args:
        hardware: The node.
        message_bytes: Of each rank.
        ranks: GPUs that take part; None: all of the node.
    """
    us = _on_line(hardware.allreduce_us, message_bytes)
    if ranks is None or ranks == hardware.gpus or hardware.links is None:
        return us
    path = hardware.links.default_path
    fewer = path_us(hardware.links, path, message_bytes, ranks)
    return us * fewer / path_us(hardware.links, path, message_bytes, hardware.gpus)


def with_communication(hardware: HardwareCard, asked: Communication) -> HardwareCard:
    """The node with another path or other NCCL settings for its all-reduces.

    Raises:
        InputError: The path does not exist on it.
    """
    links = hardware.links
    if asked == DEFAULT or links is None:
        return hardware
    path = asked.path or links.default_path
    if path in {"custom", "fused"} and links.one_shot_us is None:
        raise InputError(
            f"an all-reduce by SGLang's own kernels asked for; {hardware.name} has none",
            hint="They want NVLink, or two GPUs. Leave the path to NCCL.",
        )
    if path == "nvls" and not links.nvls:
        raise InputError(
            f"NVLS asked for; {hardware.name} has no NVSwitch that reduces", hint="Leave it out."
        )
    table = tuple(
        (
            size,
            us
            * path_us(links, path, size, hardware.gpus, asked)
            / path_us(links, links.default_path, size, hardware.gpus),
        )
        for size, us in hardware.allreduce_us
    )
    return replace(hardware, allreduce_us=table, links=replace(links, default_path=path))


def path_us(
    links: Links,
    path: AllreducePath,
    message_bytes: float,
    ranks: int,
    asked: Communication = DEFAULT,
) -> float:
    """What the model of one path says of an all-reduce of `ranks` GPUs, µs."""
    if path == "nccl":
        return nccl_us(links, message_bytes, ranks, asked)[0]
    if path == "nvls":
        return _BASE_US["ring"]["Simple"] + _NVLS_US + message_bytes / (links.bus_gb_per_s * 1e3)
    if message_bytes > _CUSTOM_MOST_BYTES[links.transport]:
        return nccl_us(links, message_bytes, ranks, asked)[0]
    latency_us = links.one_shot_us or 0.0
    bytes_per_us = (links.link_gb_per_s or links.bus_gb_per_s) * 1e3
    one_shot = latency_us + (ranks - 1) * message_bytes / bytes_per_us
    if path == "fused":
        return max(one_shot - _SAVED_KERNEL_US, 0.5 * one_shot)
    if message_bytes < _TWO_SHOT_BYTES.get(ranks, _TWO_SHOT_BYTES_MORE):
        return one_shot
    moved = 2 * message_bytes * (ranks - 1) / ranks
    return latency_us * _TWO_SHOT_SHARE + moved / bytes_per_us


def nccl_us(
    links: Links, message_bytes: float, ranks: int, asked: Communication = DEFAULT
) -> tuple[float, Algorithm, Protocol]:
    """NCCL's own estimate of an all-reduce and what it would choose for it."""
    return min(
        (_nccl_one(links, message_bytes, ranks, algorithm, protocol, asked), algorithm, protocol)
        for algorithm in asked.nccl_algorithms
        for protocol in asked.nccl_protocols
    )


def _nccl_one(
    links: Links,
    message_bytes: float,
    ranks: int,
    algorithm: Algorithm,
    protocol: Protocol,
    asked: Communication,
) -> float:
    hops = 2 * (ranks - 1)
    latency_us = _BASE_US[algorithm][protocol]
    latency_us += hops * _HOP_US[links.transport][algorithm][protocol]
    channels = asked.nccl_channels or links.nccl_channels
    bus = min(channels * links.channel_gb_per_s, links.bus_gb_per_s) * _PAYLOAD[protocol]
    share = ranks / hops * (_TREE if algorithm == "tree" else 1.0)
    return latency_us + message_bytes / (bus * share * 1e3)


def _on_line(table: Sequence[tuple[int, float]], message_bytes: float) -> float:
    if not table:
        return 0.0
    if message_bytes <= table[0][0] or len(table) == 1:
        return table[0][1]
    above = min(bisect_left(table, (message_bytes, 0.0)), len(table) - 1)
    (size0, us0), (size1, us1) = table[above - 1], table[above]
    share = math.log(message_bytes / size0) / math.log(size1 / size0)
    return float(us0 * (us1 / us0) ** share)
