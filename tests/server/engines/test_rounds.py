"""Work that runs once for all callers: when a round begins, and who waits for which round."""

from __future__ import annotations

import asyncio
import time

import pytest

from server.engines.upstream.catalog import Rounds


class Work:
    """The work of a round, which ends when the test sets `go_on`."""

    def __init__(self):
        self.begun = []
        self.go_on = asyncio.Event()

    async def __call__(self):
        self.begun.append(time.monotonic())
        await self.go_on.wait()
        if len(self.begun) == 3:
            raise ValueError("the third")


async def settle():
    for _ in range(5):
        await asyncio.sleep(0)


def test_a_round_begins_after_the_question_and_is_shared():
    async def work():
        work = Work()
        rounds = Rounds(work, pause=0.0)
        first = asyncio.create_task(rounds.ask())
        await settle()
        assert len(work.begun) == 1
        later = [asyncio.create_task(rounds.ask()) for _ in range(3)]
        left = asyncio.create_task(rounds.ask())
        await settle()
        left.cancel()
        assert len(work.begun) == 1
        work.go_on.set()
        await asyncio.gather(first, *later)
        assert len(work.begun) == 2
        for error in (ValueError, None):
            if error:
                with pytest.raises(error, match="the third"):
                    await rounds.ask()
            else:
                await rounds.ask()
        assert len(work.begun) == 4

    asyncio.run(work())


def test_a_caller_times_out_and_the_round_continues():
    async def work():
        work = Work()
        rounds = Rounds(work, pause=0.0)
        await rounds.ask(0.01)
        asked = asyncio.create_task(rounds.ask())
        await settle()
        assert (len(work.begun), asked.done()) == (1, False)
        work.go_on.set()
        await asked
        assert len(work.begun) == 2

    asyncio.run(work())


def test_rounds_rest_between():
    async def work():
        work = Work()
        work.go_on.set()
        rounds = Rounds(work, pause=0.05)
        for _ in range(2):
            await rounds.ask()
        return work.begun

    first, second = asyncio.run(work())
    assert second - first >= 0.05
