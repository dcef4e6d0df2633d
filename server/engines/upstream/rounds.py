"""Work that many ask for at once and that is done once for all of them."""

import asyncio
import time
from collections.abc import Awaitable, Callable


class Rounds:
    """Does for whoever asks a round of work that begins after the question.

    A round that was under way already may have seen what was before, and is not enough.
    Used from one event loop.
    """

    def __init__(self, work: Callable[[], Awaitable[None]], pause: float) -> None:
        """Makes it.

        Args:
            work: Does one round.
            pause: Seconds between the end of one round and the begin of the next, at least.
        """
        self._work = work
        self._pause = pause
        self._one_at_a_time = asyncio.Lock()
        self._next: asyncio.Task[None] | None = None
        self._rest_until = 0.0

    async def ask(self, seconds: float | None = None) -> None:
        """Waits for a round that is yet to begin, `seconds` at most; the round goes on then."""
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
