"""Waiting for something that can be given up: because stopping is asked for, or time is over."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, TypeVar

from bench.errors import Interrupted
from bench.runner.budgeting import NO_LIMIT, OutOfTimeError

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from bench.runner.budgeting import Limit

T = TypeVar("T")

LOOK_S: Final = 0.5
"""How often a time that is limited is looked at, in seconds of the world."""


async def until_stopped(
    work: Awaitable[T], stop_asked: asyncio.Event, limit: Limit = NO_LIMIT
) -> T:
    """Await `work`, or give it up as soon as stopping is asked for or its time is over.

    What given-up work had begun is undone: it saw its cancellation.

    Raises:
        Interrupted: Stopping was asked for.
        OutOfTimeError: The time was over.
    """
    task = asyncio.ensure_future(work)
    stop = asyncio.ensure_future(stop_asked.wait())
    try:
        while not task.done() and not stop.done() and (left_s := limit.left_s()) != 0:
            most_s = None if left_s is None else min(left_s, LOOK_S)
            await asyncio.wait({task, stop}, timeout=most_s, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            task.cancel()
            await asyncio.wait({task})
        if task.cancelled():
            if stop_asked.is_set():
                raise Interrupted("stopped as asked.")
            raise OutOfTimeError(
                "cut short: its start was not over when the time of --budget was.",
                hint="Give a larger --budget: starts take longer than was expected here.",
            )
        return task.result()
    finally:
        task.cancel()  # only when this was cancelled itself
        stop.cancel()
