"""Servers: started until they generate, kept clean between cells, stopped for good.

The runner needs `start_server` alone. Names are imported when they are asked for, because the
supervisor, a process of this package, has to be up at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bench.server.launch import RunningServer, start_server

__all__ = ["RunningServer", "start_server"]


def __getattr__(name: str) -> object:
    if name in __all__:
        from bench.server import launch  # noqa: PLC0415  # aiohttp and psutil load only here

        return getattr(launch, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
