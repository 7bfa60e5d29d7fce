"""What starts of servers are called in results and logs."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bench.model import Launch, LaunchRecord


def next_launch_id(launch: Launch, before: Iterable[LaunchRecord]) -> str:
    """`L03-eagle3-p1`; with `.1`, `.2` … behind it when it was started before."""
    base = f"L{launch.ordinal:02d}-{launch.arm}-p{launch.pair}"
    taken = {record.launch_id for record in before}
    number = 0
    while (name := base if number == 0 else f"{base}.{number}") in taken:
        number += 1
    return name
