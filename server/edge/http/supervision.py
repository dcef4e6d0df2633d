"""Ends requests whose time is up, or whose client went away."""

import asyncio
import contextlib
from collections.abc import Iterator

from starlette.types import Receive

# Answers usually take less than this: only slower ones pay for a task that watches the client.
_WATCH_AFTER_SECONDS = 0.02


class ClientGoneError(Exception):
    """The client closed the connection before it had its answer."""


class SlowBodyError(Exception):
    """The client did not send its request in the time it has."""


class DeadlineError(Exception):
    """The answer was not there in time."""


class Supervisor:
    """Cancels the task that made it when its time is up, and tells why.

    Cheaper than `asyncio.wait_for`, which would start a task for every request.
    """

    def __init__(self) -> None:
        """Makes the supervisor of the running task."""
        self._loop = asyncio.get_running_loop()
        self._task = asyncio.current_task()
        self._reason: type[Exception] | None = None
        self._watch: asyncio.Task[None] | None = None

    @contextlib.contextmanager
    def reading(self, seconds: float) -> Iterator[None]:
        """Raises `SlowBodyError` out of the block when it takes longer than `seconds`."""
        timer = self._loop.call_later(seconds, self._cancel, SlowBodyError)
        try:
            yield
        except asyncio.CancelledError:
            self._explain()
            raise
        finally:
            timer.cancel()

    @contextlib.contextmanager
    def answering(self, seconds: float, receive: Receive) -> Iterator[None]:
        """Raises `DeadlineError` or `ClientGoneError` out of the block.

        Args:
            seconds: How long the block may take.
            receive: The request's channel; its body must have been read to the end.
        """
        timer = self._loop.call_later(seconds, self._cancel, DeadlineError)
        watch = self._loop.call_later(_WATCH_AFTER_SECONDS, self._start_watch, receive)
        try:
            yield
        except asyncio.CancelledError:
            self._explain()
            raise
        finally:
            timer.cancel()
            watch.cancel()
            if self._watch is not None:
                self._watch.cancel()

    def _start_watch(self, receive: Receive) -> None:
        self._watch = self._loop.create_task(self._watch_client(receive))

    async def _watch_client(self, receive: Receive) -> None:
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                self._cancel(ClientGoneError)
                return

    def _cancel(self, reason: type[Exception]) -> None:
        if self._reason is None and self._task is not None:
            self._reason = reason
            self._task.cancel()

    def _explain(self) -> None:
        if self._reason is None:
            return
        if self._task is not None and hasattr(self._task, "uncancel"):
            self._task.uncancel()
        raise self._reason from None
