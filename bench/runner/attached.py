"""Servers that run already, asked whether they answer before the first of them is measured."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from bench.errors import ServerError
from bench.server import start_server

if TYPE_CHECKING:
    from bench.model import Plan


async def ask_attached(plan: Plan) -> None:
    """Ask each attached server for one token; one alone is asked before its first cell anyway.

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
            server = await start_server(launch.server, log_path=no_log, timeouts=timeouts)
        except ServerError as error:
            raise ServerError(
                f"nothing was measured. Arm {arm}: {error}", hint=error.hint
            ) from error
        await server.stop()
