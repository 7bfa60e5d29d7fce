"""Watching a starting server's GPUs for a collective that hangs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bench import clock, gpu
from bench.sglang.failures import HANG_S

if TYPE_CHECKING:
    from collections.abc import Sequence

SAMPLE_NS = 5_000_000_000


class SpinWatch:
    """Readings of a server's GPUs since it last made progress.

    Made for servers on this machine; without GPUs it never finds anything.
    """

    def __init__(self, gpus: Sequence[int]) -> None:
        self._gpus = gpus
        self._read: list[tuple[int, dict[int, dict[str, float | None]]]] = []

    def is_hang(self, *, since_ns: int) -> bool:
        """Read the GPUs if it is time to, and tell whether they have spun for HANG_S.

        Args:
            since_ns: When the server last made progress: earlier readings are forgotten.
        """
        if not self._gpus:
            return False
        now_ns = clock.now_ns()
        self._read = [(t_ns, values) for t_ns, values in self._read if t_ns > since_ns]
        if not self._read or now_ns - self._read[-1][0] >= SAMPLE_NS:
            values = {index: dict(gpu.read_gpu(index)) for index in self._gpus}
            self._read.append((now_ns, values))
        silent_s = (now_ns - since_ns) / 1e9
        if silent_s < HANG_S:
            return False
        from bench.metrics.hang import GpuSpan, is_spin_hang  # noqa: PLC0415  # numpy

        spans = [
            GpuSpan(
                utilisation_pct=self._values(index, "utilisation_pct"),
                power_w=self._values(index, "power_w"),
                memory_bytes=self._values(index, "memory_used_bytes"),
                power_limit_w=max(self._values(index, "power_limit_w"), default=None),
            )
            for index in self._gpus
        ]
        return is_spin_hang(spans, silent_s=silent_s)

    def _values(self, index: int, name: str) -> list[float]:
        return [v for _, read in self._read if (v := read[index].get(name)) is not None]
