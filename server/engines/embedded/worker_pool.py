"""A bounded pool of threads for blocking calls."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from ...errors import too_many

T = TypeVar("T")


class WorkerPool:
    """Runs blocking calls on a few threads, and refuses calls if too many wait.

    Used from one event loop. It is not thread-safe.
    """

    def __init__(self, name: str, threads: int, max_waiting: int) -> None:
        """Creates the pool; its threads start on first use.

        The pool runs `threads` calls at once, and at most `max_waiting` more may wait.
        """
        self._executor = ThreadPoolExecutor(threads, thread_name_prefix=name)
        self._threads = threads
        self._capacity = threads + max_waiting
        self._pending = 0
        self._settled = asyncio.Event()

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

        def settle() -> None:
            self._pending -= 1
            self._settled.set()
            if done is not None:
                done()
            if not finished.done():
                finished.set_result(None)

        self._pending += 1
        future = self._executor.submit(call)
        future.add_done_callback(
            lambda _: None if loop.is_closed() else loop.call_soon_threadsafe(settle)
        )
        try:
            await finished
        finally:
            future.cancel()
        return future.result()

    async def close(self) -> None:
        """Stops the threads and waits for the running calls. The caller may cancel this wait."""
        self._executor.shutdown(wait=False)
        while self._pending:
            self._settled.clear()
            await self._settled.wait()
