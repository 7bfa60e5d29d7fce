"""Servers that run already, asked whether they answer before the first of them is measured."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from bench.errors import ServerError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from bench.model import Plan
    from bench.server import RunningServer


async def ask_attached(plan: Plan, start: Callable[..., Awaitable[RunningServer]]) -> None:
    """Ask each attached server for one token; one alone is asked before its first cell anyway.

    Args:
        plan: What is to be measured.
        start: `bench.server.start_server`.

    Raises:
        ServerError: One does not answer or refuses its key; the arm is named.
    """
    launches = {
        launch.arm: launch for launch in plan.launches if launch.server.launcher == "attached"
    }
    if len(launches) < 2:
        return
    for arm, launch in launches.items():
        timeouts, no_log = launch.cells[0].timeouts, Path(os.devnull)
        try:
            server = await start(launch.server, log_path=no_log, timeouts=timeouts)
        except ServerError as error:
            raise ServerError(
                f"nothing was measured. Arm {arm}: {error}", hint=error.hint
            ) from error
        await server.stop()
