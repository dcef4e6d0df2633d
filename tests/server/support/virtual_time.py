"""An event loop in virtual time: when all tasks wait, its clock jumps to the next timer."""

import asyncio
import functools
import selectors
from collections.abc import Callable, Coroutine
from typing import Any


class _Selector(selectors.DefaultSelector):
    now = 0.0

    def select(self, timeout: float | None = None) -> Any:
        ready = super().select(0)
        if not ready and timeout is None:  # only a thread can go on: it closes the codec
            ready = super().select(60)
            assert ready, "all that runs waits, and for nothing that could come"
        elif not ready:
            self.now += timeout
        return ready


class _Loop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._clock = _Selector()
        super().__init__(self._clock)

    def time(self) -> float:
        return self._clock.now


def run_in_virtual_time(work: Coroutine[Any, Any, Any]) -> Any:
    """Runs a coroutine as `asyncio.run` does, but sleeping takes no real time.

    So events have the same order on every machine, however slow it is. While a timer runs, the
    coroutine must not wait for other threads.
    """
    loop = _Loop()
    try:
        return loop.run_until_complete(work)
    finally:
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()


def in_virtual_time(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Runs a test that is a coroutine with `run_in_virtual_time`."""

    @functools.wraps(test)
    def run(*arguments: Any, **fixtures: Any) -> None:
        run_in_virtual_time(test(*arguments, **fixtures))

    return run
