"""What NCCL chose for each message, from its log (NCCL_DEBUG_SUBSYS=TUNING,ENV); pure.

Formats, from NCCL's src/enqueue.cc and the issues of its repository: numbers in older versions,
`805306368 Bytes -> Algo 1 proto 2 time 3970.68`, some with the collective's name in front; names
in newer ones, `AllReduce: 4096 Bytes -> Algo TREE proto LL channel{Lo..Hi}={0..1}`; of symmetric
kernels `AllReduce [Symmetric]: 8192 Bytes -> Kernel AllReduce_AGxLL_R nchannels 1 nthreads 512 …`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

# src/include/device.h
_ALGORITHMS: Final = (
    *("Tree", "Ring", "CollNetDirect", "CollNetChain", "NVLS", "NVLSTree", "PAT"),
)
_PROTOCOLS: Final = ("LL", "LL128", "Simple")
_BY_NAME: Final = {
    re.sub(r"[^a-z0-9]", "", name.lower()): name for name in (*_ALGORITHMS, *_PROTOCOLS)
}
_MOST_CHANNELS: Final = 64

_BY_NUMBER: Final = re.compile(
    r"NCCL INFO (?:(?P<call>\w+): +)?(?P<size>\d+) +Bytes +-> Algo +(?P<algo>\d+) +"
    r"proto +(?P<proto>\d+) +time +(?P<us>\d+(?:\.\d+)?)\s*"
)
_BY_WORD: Final = re.compile(
    r"(?:NCCL INFO )?(?P<call>\w+): +(?P<size>\d+) +Bytes +-> Algo +(?P<algo>[A-Za-z_]\w*) +"
    r"proto +(?P<proto>[A-Za-z]\w*) +channel\{Lo\.\.Hi\}=\{(?P<low>\d+)\.\.(?P<high>\d+)\}.*"
)
_SYMMETRIC: Final = re.compile(
    r"(?:NCCL INFO )?(?P<call>\w+) \[Symmetric\]: +(?P<size>\d+) +Bytes +-> Kernel +"
    r"(?P<kernel>\w+) +nchannels +(?P<channels>\d+) +nthreads +\d+.*"
)
_SET: Final = re.compile(r"NCCL INFO (NCCL_\w+) set by environment to (.*?)\.?\s*")
_PREFIX: Final = re.compile(r"^.*?(?=NCCL INFO )")


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """How NCCL did the all-reduces of one size.

    Attributes:
        message_bytes: The size.
        algorithm: Ring, Tree, NVLS, …, or a symmetric kernel's name.
        protocol: LL, LL128 or Simple; None for a symmetric kernel.
        channels: How many channels; None where the log does not tell.
    """

    message_bytes: int
    algorithm: str
    protocol: str | None
    channels: int | None

    @property
    def label(self) -> str:
        """`Ring/LL, 2 channels`."""
        how = self.algorithm if self.protocol is None else f"{self.algorithm}/{self.protocol}"
        if self.channels is None:
            return how
        return f"{how}, {self.channels} channel{'' if self.channels == 1 else 's'}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TuningLog:
    """What the log of one start tells.

    Attributes:
        choices: The last one of each size, rising.
        set_variables: (name, value) of variables that NCCL says it took, in order.
    """

    choices: tuple[Choice, ...]
    set_variables: tuple[tuple[str, str], ...]


def parse_tuning_log(lines: Iterable[str]) -> TuningLog:
    """What NCCL chose for all-reduces; damaged and other lines are passed over."""
    choices: dict[int, Choice] = {}
    taken: dict[str, str] = {}
    for line in lines:
        said = _PREFIX.sub("", line.rstrip("\r\n"), count=1)
        choice = _choice(said.strip())
        if choice is not None:
            choices[choice.message_bytes] = choice
        elif (found := _SET.fullmatch(said)) is not None:
            taken[found[1]] = found[2]
    return TuningLog(
        choices=tuple(choices[size] for size in sorted(choices)),
        set_variables=tuple(taken.items()),
    )


def _choice(said: str) -> Choice | None:
    for form in (_BY_WORD, _SYMMETRIC, _BY_NUMBER):
        found = form.fullmatch(said)
        if found is not None:
            break
    else:
        return None
    if found["call"] not in {None, "AllReduce"} or int(found["size"]) == 0:
        return None
    size = int(found["size"])
    if form is _SYMMETRIC:
        return Choice(
            message_bytes=size,
            algorithm=found["kernel"],
            protocol=None,
            channels=_in_range(int(found["channels"])),
        )
    if form is _BY_NUMBER:
        algorithm, protocol = int(found["algo"]), int(found["proto"])
        if algorithm >= len(_ALGORITHMS) or protocol >= len(_PROTOCOLS):
            return None
        return Choice(
            message_bytes=size,
            algorithm=_ALGORITHMS[algorithm],
            protocol=_PROTOCOLS[protocol],
            channels=None,
        )
    named = (_name(found["algo"], _ALGORITHMS), _name(found["proto"], _PROTOCOLS))
    if named[0] is None or named[1] is None:
        return None
    channels = int(found["high"]) - int(found["low"]) + 1
    return Choice(
        message_bytes=size, algorithm=named[0], protocol=named[1], channels=_in_range(channels)
    )


def _name(written: str, known: tuple[str, ...]) -> str | None:
    name = _BY_NAME.get(re.sub(r"[^a-z0-9]", "", written.lower()))
    return name if name in known else None


def _in_range(channels: int) -> int | None:
    return channels if 1 <= channels <= _MOST_CHANNELS else None
