"""Work that runs once for all callers who request it at the same time."""

import asyncio
import time
from collections.abc import Awaitable, Callable


class Rounds:
    """Runs rounds of work. Each caller waits for a round that begins after its request.

    A round that is already running may have seen an older state, so it is not enough. Used from one
    event loop.
    """

    def __init__(self, work: Callable[[], Awaitable[None]], pause: float) -> None:
        """Creates the rounds.

        Args:
            work: Does one round.
            pause: Least seconds between the end of one round and the start of the next.
        """
        self._work = work
        self._pause = pause
        self._one_at_a_time = asyncio.Lock()
        self._next: asyncio.Task[None] | None = None
        self._rest_until = 0.0

    async def ask(self, seconds: float | None = None) -> None:
        """Waits at most `seconds` for a round that has not begun yet. The round goes on then."""
        if self._next is None:
            self._next = asyncio.get_running_loop().create_task(self._round())
        mine = self._next
        await asyncio.wait([mine], timeout=seconds)
        if mine.done():
            mine.result()

    async def _round(self) -> None:
        async with self._one_at_a_time:
            await asyncio.sleep(self._rest_until - time.monotonic())
            self._next = None
            try:
                await self._work()
            finally:
                self._rest_until = time.monotonic() + self._pause
