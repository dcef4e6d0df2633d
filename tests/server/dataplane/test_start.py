"""Requests start without a task, and get one when they wait."""

import asyncio
import contextvars
import sys

import pytest

from server.dataplane.start import ensure_task, start_now
from server.dataplane.supervision import ClientGoneError, Supervisor, Watch
from tests.server.support.eventually import PATIENCE_S
from tests.server.support.virtual_time import run_in_virtual_time
from tests.support.applies import applies_if

STEP = contextvars.ContextVar("step", default="none")

needs_contexts = applies_if(sys.version_info >= (3, 11), "Python 3.11, where tasks share contexts")


async def begin(work, then=None):
    """Starts a coroutine as a protocol does, outside of tasks; returns its task, if any."""
    loop = asyncio.get_running_loop()
    begun = loop.create_future()

    def start():
        task = start_now(loop, work())
        if then is not None:
            then(task)
        begun.set_result([task])

    loop.call_soon(start)
    return (await asyncio.wait_for(begun, PATIENCE_S))[0]


def started(work):
    """Runs a coroutine; returns whether it got a task."""

    async def run():
        task = await begin(work)
        if task is not None:
            await task
        return task is not None

    return asyncio.run(run())


@needs_contexts
def test_a_coroutine_that_does_not_wait_gets_no_task():
    seen = []

    async def work():
        seen.append(asyncio.current_task())

    assert not started(work)
    assert seen == [None]


def test_a_coroutine_that_waits_goes_on_in_a_task_and_in_its_context():
    async def work():
        token = STEP.set("begun")
        await asyncio.sleep(0)
        assert await asyncio.to_thread(STEP.get) == "begun"
        await asyncio.sleep(0.001)
        assert asyncio.current_task() is not None
        STEP.reset(token)

    assert started(work)
    assert STEP.get() == "none"


def test_a_task_runs_what_needs_one():
    async def work():
        await ensure_task()
        async with asyncio.TaskGroup() if sys.version_info >= (3, 11) else asyncio.Lock():
            assert asyncio.current_task() is not None

    assert started(work)


@pytest.mark.parametrize("at_once", [True, False])
def test_a_task_can_be_cancelled_before_its_first_step_and_later(at_once):
    ended = []

    async def run():
        future = asyncio.get_running_loop().create_future()

        async def work():
            try:
                await future
            except asyncio.CancelledError:
                ended.append("cancelled")
                raise

        task = await begin(work, lambda task: at_once and task.cancel())
        if not at_once:
            task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert future.cancelled()

    asyncio.run(run())
    assert ended == ["cancelled"]


@pytest.mark.parametrize("seconds", [0.0, 0.01])
def test_a_deadline_ends_a_request_that_began_without_a_task(seconds):
    ended = []

    async def run():
        watch = Watch()

        async def work():
            try:
                with Supervisor(watch) as supervisor:
                    supervisor.bound(seconds, lambda: TimeoutError("late"), asyncio.Event().wait)
                    await asyncio.sleep(10)
            except (TimeoutError, ClientGoneError) as error:
                ended.append(str(error))

        await asyncio.wait_for(await begin(work), 5)
        assert not watch.running

    run_in_virtual_time(run())
    assert ended == ["late"]
