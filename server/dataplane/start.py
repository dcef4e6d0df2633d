"""Starts requests without a task. Most of them end before they wait for anything.

A task per request would take a tenth of the CPU time that a small request takes in Python.
"""

import asyncio
import contextvars
import sys
from collections.abc import Coroutine
from typing import Any

from .supervision import give_task


def start_now(
    loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, None]
) -> "asyncio.Task[None] | None":
    """Runs a coroutine until it ends, or until it waits; then a task continues it.

    Call it outside of tasks: until the coroutine waits, there is no current task. A part that needs
    one awaits `ensure_task`.

    Args:
        loop: The running event loop.
        coroutine: A coroutine that was not started.

    Returns:
        The task; None if the coroutine has ended.
    """
    if sys.version_info < (3, 11):
        # Tasks cannot share a context, so a context variable could not be reset.
        return loop.create_task(coroutine)
    context = contextvars.copy_context()
    try:
        awaited = context.run(coroutine.send, None)
    except StopIteration:
        return None
    task = loop.create_task(_Rest(coroutine, awaited), context=context)
    give_task(task)
    return task


async def ensure_task() -> None:
    """Makes a task run the rest of the calling coroutine, if none runs it yet."""
    if asyncio.current_task() is None:
        await asyncio.sleep(0)


class _Rest(Coroutine[Any, Any, None]):
    """The rest of a coroutine that waits for a future, or for its turn (None)."""

    def __init__(
        self, coroutine: Coroutine[Any, Any, None], awaited: "asyncio.Future[Any] | None"
    ) -> None:
        self._coroutine = coroutine
        self._awaited = awaited
        self._told = False

    def send(self, value: Any) -> Any:
        if not self._told:
            self._told = True
            return self._awaited
        return self._coroutine.send(value)

    def throw(self, *error: Any) -> Any:
        if not self._told:
            self._told = True
            # The task is cancelled before its first step: cancel the future as a task does.
            if self._awaited is not None and self._awaited.cancel():
                return self._awaited
        return self._coroutine.throw(*error)

    def close(self) -> None:
        self._coroutine.close()

    def __await__(self) -> Any:
        return self
