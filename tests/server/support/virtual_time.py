"""An event loop that does not wait: its clock goes on to the next timer when all else is done."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class _Selector(selectors.DefaultSelector):
    now = 0.0

    def select(self, timeout: float | None = None) -> Any:
        ready = super().select(0)
        if not ready:
            assert timeout is not None, "all that runs waits, and for nothing that could come"
            self.now += timeout
        return ready


class _Loop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._clock = _Selector()
        super().__init__(self._clock)

    def time(self) -> float:
        return self._clock.now


def run_in_virtual_time(work: Coroutine[Any, Any, T]) -> T:
    """Runs it as `asyncio.run` does; what sleeps a second in it takes no time at all.

    So the order of what happens is the same on every machine. For work in one thread only.
    """
    loop = _Loop()
    try:
        return loop.run_until_complete(work)
    finally:
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()
