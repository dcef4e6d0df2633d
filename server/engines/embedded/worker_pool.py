"""A bounded pool of threads for calls that block."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from server.errors import Code, ServingError

T = TypeVar("T")


class WorkerPool:
    """Runs blocking calls on a few threads; refuses work beyond a bound instead of piling it up.

    Used from one event loop; not thread-safe by itself.
    """

    def __init__(self, name: str, threads: int, max_waiting: int) -> None:
        """Makes the pool; its threads start when first needed.

        Args:
            name: Name of the threads, for whoever looks at the process.
            threads: How many calls run at once.
            max_waiting: How many calls may wait for a thread.
        """
        self._executor = ThreadPoolExecutor(threads, thread_name_prefix=name)
        self._threads = threads
        self._capacity = threads + max_waiting
        self._pending = 0
        self._settled = asyncio.Event()

    @property
    def waiting(self) -> int:
        """How many calls wait for a thread now."""
        return max(0, self._pending - self._threads)

    async def run(self, call: Callable[[], T], done: Callable[[], None] | None = None) -> T:
        """Runs a call on a thread and returns its result, or raises its exception.

        Args:
            call: What to run. If the caller is cancelled meanwhile a call that runs goes on
                to its end and one that waits is dropped.
            done: Called in the event loop once the call is over, also when its caller was
                cancelled before.

        Raises:
            ServingError: RESOURCE_EXHAUSTED if too many calls wait already.
        """
        if self._pending >= self._capacity:
            if done is not None:
                done()
            raise ServingError(
                Code.RESOURCE_EXHAUSTED,
                f"Too many requests wait for the model: {self.waiting}. Try again later.",
                retry_after=1.0,
            )
        loop = asyncio.get_running_loop()
        self._pending += 1

        def settle() -> None:
            self._pending -= 1
            self._settled.set()
            if done is not None:
                done()

        def settle_from_thread(_: Future[T]) -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(settle)

        future = self._executor.submit(call)
        future.add_done_callback(settle_from_thread)
        return await asyncio.wrap_future(future)

    async def close(self) -> None:
        """Stops the threads and waits for the calls under way; it may be cancelled."""
        self._executor.shutdown(wait=False)
        while self._pending:
            self._settled.clear()
            await self._settled.wait()
