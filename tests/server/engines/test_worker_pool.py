"""`WorkerPool` refuses calls beyond its bound, drops cancelled calls, and counts waiting ones."""

import asyncio
import functools
import gc
import threading
import weakref

import numpy as np
import pytest

from server.engines.embedded.worker_pool import WorkerPool
from server.errors import Code, ServingError
from tests.server.support.eventually import PATIENCE_S, eventually


async def test_work_beyond_the_bound_is_refused_and_the_rest_is_done():
    pool = WorkerPool("test", threads=1, max_waiting=2)
    go = threading.Event()
    released = []
    accepted = [
        asyncio.create_task(pool.run(lambda: go.wait(PATIENCE_S), lambda: released.append(1)))
        for _ in range(3)
    ]
    await eventually(lambda: pool.waiting == 2)
    with pytest.raises(ServingError) as caught:
        await pool.run(lambda: None, lambda: released.append(2))
    assert caught.value.code is Code.RESOURCE_EXHAUSTED
    assert caught.value.retry_after == 1.0
    assert released == [2]
    go.set()
    assert await asyncio.gather(*accepted) == [True] * 3
    await eventually(lambda: len(released) == 4)
    assert (pool.waiting, released) == (0, [2, 1, 1, 1])
    await pool.close()


async def test_a_cancelled_call_that_waits_is_dropped_and_one_that_runs_is_awaited():
    pool = WorkerPool("test", threads=1, max_waiting=5)
    go = threading.Event()
    ran, done = [], []

    def call(name):
        ran.append(name)
        go.wait(PATIENCE_S)

    tasks = [
        asyncio.create_task(pool.run(lambda n=n: call(n), lambda n=n: done.append(n)))
        for n in range(3)
    ]
    await eventually(lambda: ran)
    tasks[0].cancel()
    tasks[1].cancel()
    await eventually(lambda: done)
    for _ in range(20):  # the call that runs is not done before its thread is
        await asyncio.sleep(0)
    assert done == [1]
    go.set()
    await tasks[2]
    await eventually(lambda: len(done) == 3)
    assert (ran, sorted(done)) == ([0, 2], [0, 1, 2])
    await pool.close()


@pytest.mark.parametrize("error", [ValueError, StopIteration, SystemExit])
async def test_an_error_of_a_call_is_raised_and_does_not_keep_the_inputs(error):
    pool = WorkerPool("test", threads=1, max_waiting=1)
    inputs = np.zeros(3)
    kept = weakref.ref(inputs)

    def call(array):
        raise error(len(array))

    gc.disable()  # a cycle would keep the inputs until Python's next collection
    try:
        with pytest.raises((error, RuntimeError)):  # Python replaces StopIteration
            await pool.run(functools.partial(call, inputs))
        del inputs
        await eventually(lambda: kept() is None)
    finally:
        gc.enable()
    assert await pool.run(lambda: 7) == 7, "the thread goes on"
    await pool.close()
