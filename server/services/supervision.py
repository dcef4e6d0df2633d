"""Ends requests whose deadline has passed or whose client has disconnected."""

import asyncio
import math
from collections.abc import Awaitable, Callable
from types import TracebackType

# Most requests are answered within this many seconds. Only if a request takes longer, a task starts
# that waits for its client to disconnect.
_LOOK_SECONDS = 0.02
_NEVER = math.inf


class ClientGoneError(Exception):
    """The client closed the connection before the answer."""


class Watch:
    """Looks at the running requests of one event loop from time to time.

    One timer serves all requests. Starting a timer for each request would take longer than all
    other work of its `Supervisor`.
    """

    def __init__(self) -> None:
        """Creates the watch. Its timer runs only while there are requests."""
        self.running: set[Supervisor] = set()
        self.next_look = _NEVER
        self._timer: asyncio.TimerHandle | None = None

    def look_by(self, at: float) -> None:
        """Makes the watch look at its requests no later than `at`, on the event loop's clock."""
        if at < self.next_look:
            if self._timer is not None:
                self._timer.cancel()
            self.next_look = at
            self._timer = asyncio.get_running_loop().call_at(at, self._look)

    def _look(self) -> None:
        self.next_look, self._timer = _NEVER, None
        if self.running:
            now = asyncio.get_running_loop().time()
            due = min([supervisor.look(now) for supervisor in self.running])
            self.look_by(min(due, now + _LOOK_SECONDS))


class Supervisor:
    """Context manager that cancels the task inside it at a deadline, and raises the reason instead.

    It takes less time than `asyncio.wait_for`, which starts a task per request before Python 3.12,
    and less than a generator-based context manager.
    """

    __slots__ = ("_due", "_gone", "_late", "_loop", "_reason", "_task", "_watch", "_watcher")

    def __init__(self, watch: Watch) -> None:
        """Creates the supervisor of one request; `watch` belongs to the event loop."""
        self._watch = watch
        self._reason: Exception | None = None
        self._watcher: asyncio.Task[None] | None = None

    def __enter__(self) -> "Supervisor":
        self._loop = asyncio.get_running_loop()
        task = asyncio.current_task(self._loop)
        assert task is not None
        self._task = task
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
            gone: Returns when the client disconnects; the block then raises `ClientGoneError`. None
                if the transport itself cancels the task of a client that disconnected.
        """
        now = self._loop.time()
        due = self._due = now + seconds
        self._late, self._gone = late, gone
        watch = self._watch
        watch.running.add(self)
        if due < watch.next_look:
            watch.look_by(min(due, now + _LOOK_SECONDS))

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._watch.running.discard(self)
        if self._watcher is not None:
            self._watcher.cancel()
        if kind is asyncio.CancelledError and self._reason is not None:
            if hasattr(self._task, "uncancel"):  # since Python 3.11
                self._task.uncancel()
            raise self._reason from None

    def look(self, now: float) -> float:
        """Cancels the task if its deadline has passed; returns the time of the next look."""
        if now >= self._due:
            self._cancel(self._late())
            return _NEVER
        if self._gone is not None and self._watcher is None:
            self._watcher = self._loop.create_task(self._wait_gone(self._gone))
        return self._due

    async def _wait_gone(self, gone: Callable[[], Awaitable[None]]) -> None:
        await gone()
        self._cancel(ClientGoneError())

    def _cancel(self, reason: Exception) -> None:
        if self._reason is None:
            self._reason = reason
            self._task.cancel()
