"""Ends requests whose time is up, or whose client went away."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator

# Answers usually take less than this: only slower ones pay for a task that watches the client.
_WATCH_AFTER_SECONDS = 0.02


class ClientGoneError(Exception):
    """The client closed the connection before it had its answer."""


class Supervisor:
    """Cancels the task that made it, and raises the reason in its place.

    Cheaper than `asyncio.wait_for`, which starts a task for every request before Python 3.12.
    """

    def __init__(self) -> None:
        """Makes the supervisor of the running task."""
        self._loop = asyncio.get_running_loop()
        self._task = asyncio.current_task()
        self._reason: Exception | None = None

    @contextlib.contextmanager
    def limit(self, seconds: float, reason: Exception) -> Iterator[None]:
        """Raises `reason` out of the block when it takes longer than `seconds`."""
        timer = self._loop.call_later(seconds, self._cancel, reason)
        try:
            yield
        except asyncio.CancelledError:
            self._explain()
            raise
        finally:
            timer.cancel()

    @contextlib.contextmanager
    def watch(self, gone: Callable[[], Awaitable[None]] | None) -> Iterator[None]:
        """Raises `ClientGoneError` out of the block once `gone` returns.

        Args:
            gone: Waits until the client is gone; None if the transport cancels the task itself.
        """
        if gone is None:
            yield
            return
        watcher: asyncio.Task[None] | None = None

        async def wait() -> None:
            await gone()
            self._cancel(ClientGoneError())

        def start() -> None:
            nonlocal watcher
            watcher = self._loop.create_task(wait())

        timer = self._loop.call_later(_WATCH_AFTER_SECONDS, start)
        try:
            yield
        except asyncio.CancelledError:
            self._explain()
            raise
        finally:
            timer.cancel()
            if watcher is not None:
                watcher.cancel()

    def _cancel(self, reason: Exception) -> None:
        if self._reason is None and self._task is not None:
            self._reason = reason
            self._task.cancel()

    def _explain(self) -> None:
        if self._reason is None:
            return
        if self._task is not None and hasattr(self._task, "uncancel"):
            self._task.uncancel()
        raise self._reason from None
