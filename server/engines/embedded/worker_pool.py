"""A bounded pool of threads for blocking calls."""

import asyncio
import contextlib
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import TypeVar

from ...errors import too_many

T = TypeVar("T")


class WorkerPool:
    """Runs blocking calls on a few threads, and refuses calls if too many wait.

    Used from one event loop. It is not thread-safe. A hand-over to these threads takes half the
    time of one through a `ThreadPoolExecutor`, whose futures each have a lock.
    """

    def __init__(self, name: str, threads: int, max_waiting: int) -> None:
        """Creates the pool; its threads start on first use.

        The pool runs `threads` calls at once, and at most `max_waiting` more may wait.
        """
        self._name, self._threads = name, threads
        self._capacity = threads + max_waiting
        self._started = self._pending = 0
        self._settled = asyncio.Event()
        self._works: SimpleQueue[Callable[[], None] | None] = SimpleQueue()

    @property
    def waiting(self) -> int:
        """The number of calls that wait for a thread now."""
        return max(0, self._pending - self._threads)

    async def run(self, call: Callable[[], T], done: Callable[[], None] | None = None) -> T:
        """Runs a call on a thread and returns its result, or raises its exception.

        Args:
            call: The function to run. If the awaiting task is cancelled, a call that already runs
                continues to its end, and a call that still waits for a thread is dropped.
            done: Called in the event loop after the call, even if the caller was cancelled.

        Raises:
            ServingError: RESOURCE_EXHAUSTED if too many calls wait already.
        """
        if self._pending >= self._capacity:
            if done is not None:
                done()
            raise too_many("requests wait for the model", self.waiting)
        loop = asyncio.get_running_loop()
        finished = loop.create_future()
        turn = threading.Lock()  # taken by the thread that calls, or by a caller that gives up
        result: T
        error: BaseException | None = None

        def work() -> None:
            nonlocal result, error
            if not turn.acquire(blocking=False):
                return
            try:
                result = call()
            except BaseException as raised:
                error = raised
            with contextlib.suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(settle)

        def settle() -> None:
            self._pending -= 1
            self._settled.set()
            if done is not None:
                done()
            if not finished.done():
                finished.set_result(None)

        if self._started <= min(self._pending, self._threads - 1):
            self._started += 1
            threading.Thread(target=self._work, name=self._name, daemon=True).start()
        self._pending += 1
        self._works.put(work)
        try:
            await finished
            if error is not None:
                raise error
            return result
        finally:
            error = None  # it refers to the frame of `work`, which refers to it
            if turn.acquire(blocking=False):
                settle()

    def _work(self) -> None:
        while work := self._works.get():
            work()
            del work  # with the inputs of the call, while the thread waits for the next one

    async def close(self) -> None:
        """Ends the threads and waits for the running calls. The caller may cancel this wait."""
        for _ in range(self._started):
            self._works.put(None)
        self._started = 0
        while self._pending:
            self._settled.clear()
            await self._settled.wait()
