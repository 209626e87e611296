"""Ending a task for certain, and waiting without missing the end."""

import asyncio
from contextlib import suppress
from typing import Any

RETRY_SECONDS = 0.1


async def end(*tasks: asyncio.Task[Any]) -> None:
    """Cancel tasks and return when they have ended, whatever they end with.

    Once is not enough: before Python 3.12 `asyncio.wait_for`, which the database driver uses for
    every command, loses a cancellation that comes at the moment its work is done. The task would
    go on, and whoever waits for its end would wait for ever.
    """
    waiting = {task for task in tasks if not task.done()}
    while waiting:
        for task in waiting:
            task.cancel()
        _, waiting = await asyncio.wait(waiting, timeout=RETRY_SECONDS)
    # Looked at, so that the loop does not complain of exceptions nobody saw.
    for task in tasks:
        if not task.cancelled():
            task.exception()


async def pause(seconds: float, stopping: asyncio.Event) -> None:
    """Wait so long, or until told to stop."""
    with suppress(TimeoutError):
        await asyncio.wait_for(stopping.wait(), seconds)
