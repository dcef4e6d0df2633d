"""Ends requests whose deadline has passed or whose client has disconnected."""

import asyncio
from collections.abc import Awaitable, Callable
from types import TracebackType

# Answers usually take less than this: only slower ones pay for a task that watches the client, and
# for a second timer.
_LOOK_SECONDS = 0.02


class ClientGoneError(Exception):
    """The client closed the connection before the answer."""


class Supervisor:
    """Cancels the task that enters it, and replaces the cancellation by its reason.

    Cheaper than `asyncio.wait_for`, which starts a task for every request before Python 3.12, and
    than a generator for each `with`. One timer does for most requests.
    """

    __slots__ = (
        "_due",
        "_gone",
        "_late",
        "_look_at",
        "_loop",
        "_reason",
        "_task",
        "_timer",
        "_watcher",
    )

    def __enter__(self) -> "Supervisor":
        self._loop = asyncio.get_running_loop()
        self._task = asyncio.current_task(self._loop)
        self._reason: Exception | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._look_at = 0.0
        self._watcher: asyncio.Task[None] | None = None
        return self

    def bound(
        self,
        seconds: float,
        late: Callable[[], Exception],
        gone: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """Bounds what follows, instead of what was bounded before.

        Args:
            seconds: Time that it may take.
            late: Makes the exception if it takes longer.
            gone: Waits until the client is gone, which raises `ClientGoneError`; None if the
                transport cancels the task itself.
        """
        now = self._loop.time()
        self._due, self._late, self._gone = now + seconds, late, gone
        self._look_by(now + min(seconds, _LOOK_SECONDS))

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._watcher is not None:
            self._watcher.cancel()
        if kind is asyncio.CancelledError and self._reason is not None:
            if self._task is not None and hasattr(self._task, "uncancel"):
                self._task.uncancel()
            raise self._reason from None

    def _look_by(self, at: float) -> None:
        if self._timer is not None:
            if self._look_at <= at:
                return
            self._timer.cancel()
        self._look_at = at
        self._timer = self._loop.call_at(at, self._look)

    def _look(self) -> None:
        self._timer = None
        if self._loop.time() >= self._due:
            self._cancel(self._late())
            return
        if self._gone is not None and self._watcher is None:
            self._watcher = self._loop.create_task(self._wait_gone(self._gone))
        self._look_by(self._due)

    async def _wait_gone(self, gone: Callable[[], Awaitable[None]]) -> None:
        await gone()
        self._cancel(ClientGoneError())

    def _cancel(self, reason: Exception) -> None:
        if self._reason is None and self._task is not None:
            self._reason = reason
            self._task.cancel()
