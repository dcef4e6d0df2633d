"""Another process decodes and encodes large bodies: arguments, results, errors, cancellation."""

import asyncio
import copy
import operator
import os
import pickle
import resource
import subprocess
import sys
import time

import numpy as np
import pytest

from server.errors import ServingError
from server.wire.codec import Codec
from tests.server.support.eventually import eventually
from tests.server.support.gateway_process import ROOT, children_of, has_ended

LARGE = 10**9


@pytest.fixture
async def codec():
    codec = Codec()
    yield codec
    await codec.close()


async def test_small_work_runs_in_this_process_and_large_work_in_another(codec):
    sizes = (0, 100_000, LARGE)
    here, on_thread, apart = [await codec.run(size, "decode", os.getpid) for size in sizes]
    assert here == on_thread == os.getpid() != apart


@pytest.mark.parametrize(
    "value",
    [
        np.arange(6.0).reshape(2, 3),
        np.array([[b"a", b""], [b"\0b", b"c\0"]] * 1200, object),
        b"x" * 100_000,
        b"x" * (8 << 20),
        {"x": np.empty((0, 2), np.int64)},
    ],
    ids=["numbers", "strings", "bytes", "many bytes", "empty"],
)
async def test_values_come_back_as_they_were(codec, value):
    returned = await codec.run(LARGE, "encode", copy.copy, value)
    np.testing.assert_equal(returned, value)
    assert type(returned) is type(value)


@pytest.mark.parametrize(("function", "argument"), [(bytearray, 1 << 40), (os._exit, 1)])
async def test_a_process_that_ends_refuses_the_request_and_leaves_the_next_alone(
    codec, function, argument
):
    with pytest.raises(ServingError, match="needs too much memory"):
        await codec.run(LARGE, "decode", function, argument)
    assert await codec.run(LARGE, "decode", len, b"abc") == 3


async def test_a_pipe_with_a_part_of_a_message_is_not_used_again(codec):
    with pytest.raises((pickle.PicklingError, AttributeError)):
        await codec.run(LARGE, "decode", max, bytes(100_000), lambda: 0)
    assert await codec.run(LARGE, "decode", operator.add, b"b", b"c") == b"bc"


async def test_work_that_nobody_waits_for_is_killed(codec):
    before = children_of(os.getpid())
    task = asyncio.create_task(codec.run(LARGE, "decode", time.sleep, 3600))
    await eventually(lambda: children_of(os.getpid()) != before)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await eventually(lambda: children_of(os.getpid()) == before)
    assert await codec.run(LARGE, "decode", len, b"abc") == 3


async def test_a_process_has_6_gib_of_addresses_and_a_low_priority(codec):
    limits = await codec.run(LARGE, "decode", resource.getrlimit, resource.RLIMIT_AS)
    assert limits == (6 << 30, 6 << 30)
    assert await codec.run(LARGE, "decode", os.nice, 0) == min(os.nice(0) + 10, 19)


async def test_a_process_ends_with_the_gateway():
    script = (
        "import os, time; from server.wire.codec_process import CodecProcess\n"
        "print(CodecProcess().call(os.getpid, ()), flush=True); time.sleep(3600)"
    )
    command = [sys.executable, "-c", script]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT) as gateway:
        pid = int(gateway.stdout.readline())
        gateway.kill()
    await eventually(lambda: has_ended(pid))
