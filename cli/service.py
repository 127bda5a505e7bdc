"""What commands that serve until a signal have in common."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Coroutine
from typing import Any

import click


async def serve(
    work: Coroutine[Any, Any, None], ready: asyncio.Event, announce: Callable[[], str]
) -> None:
    """Run until SIGTERM or SIGINT, say once when it is ready, and clean up.

    Args:
        work: Serves until it is cancelled; its error ends the command.
        ready: Set by ``work``.
        announce: The line that is printed then.
    """
    loop = asyncio.get_running_loop()
    serving = asyncio.create_task(work)
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, serving.cancel)
    telling = asyncio.create_task(_tell(ready, announce))
    try:
        await serving
    except asyncio.CancelledError:
        if not serving.cancelled():
            raise
    finally:
        telling.cancel()


async def _tell(ready: asyncio.Event, announce: Callable[[], str]) -> None:
    await ready.wait()
    click.echo(announce())
