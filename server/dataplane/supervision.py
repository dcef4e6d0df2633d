"""Ends requests whose deadline has passed or whose client has disconnected."""

import asyncio
from collections.abc import Awaitable, Callable
from types import TracebackType

# Most answers take less than this many seconds. Only slower ones get a second timer, and a task
# that watches the client.
_LOOK_SECONDS = 0.02


class ClientGoneError(Exception):
    """The client closed the connection before the answer."""


class Supervisor:
    """Cancels the task that enters it, and replaces the cancellation by its reason.

    Cheaper than `asyncio.wait_for`, which starts a task per request before Python 3.12, and cheaper
    than a generator-based context manager. Most requests need one timer.
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
        """Limits the time of the rest of the block. Replaces an earlier limit.

        Args:
            seconds: The time limit.
            late: Creates the exception for a block that exceeds the limit.
            gone: Waits until the client disconnects, which raises `ClientGoneError`. None if the
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
