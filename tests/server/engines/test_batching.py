"""Tests which requests join a micro-batch, and that one request does not harm another."""

import asyncio
import random

import numpy as np
import pytest

from server.engines.embedded.batching import Batcher, batchable
from server.errors import Code, ServingError
from tests.server.support.numpy_engine import signature, tensor
from tests.server.support.virtual_time import in_virtual_time

SPEC = signature("double", [tensor("x", "float", None, None)], [tensor("y", "float", None, None)])


class Model:
    """Doubles rows; refuses batches with a negative value."""

    def __init__(self, seconds=0.0, code=Code.INVALID_ARGUMENT):
        self.batches = []
        self.seconds = seconds
        self.code = code

    async def run(self, _signature, inputs):
        self.batches.append(len(inputs["x"]))
        await asyncio.sleep(self.seconds)
        if (inputs["x"] < 0).any():
            raise ServingError(self.code, "negative")
        return {"y": inputs["x"] * 2}


def rows(value, count=1, width=2):
    return {"x": np.full((count, width), value, np.float32)}


async def run(model, requests, **options):
    batcher = Batcher(model.run, **{"most_rows": 8, "delay_seconds": 0.02, **options})
    return await asyncio.gather(
        *(batcher.run(SPEC, each) for each in requests), return_exceptions=True
    )


@in_virtual_time
async def test_requests_that_come_together_run_together_and_each_gets_its_rows():
    model = Model()
    answers = await run(model, [rows(1, 2), rows(2, 1), rows(3, 3)])
    assert model.batches == [6]
    assert [a["y"].tolist() for a in answers] == [[[2, 2]] * 2, [[4, 4]], [[6, 6]] * 3]


@in_virtual_time
async def test_a_batch_is_sent_when_it_is_full_and_a_large_request_goes_alone():
    model = Model()
    await run(model, [rows(i, 3) for i in range(6)] + [rows(9, 20)])
    assert sorted(model.batches) == [6, 6, 6, 20]


@in_virtual_time
async def test_other_inner_shapes_make_other_batches():
    model = Model()
    answers = await run(model, [rows(1, width=2), rows(2, width=3), rows(3, width=2)])
    assert sorted(model.batches) == [1, 2]
    assert [a["y"].shape for a in answers] == [(1, 2), (1, 3), (1, 2)]


@pytest.mark.parametrize("code", [Code.INVALID_ARGUMENT, Code.NOT_FOUND, Code.DATA_LOSS])
@in_virtual_time
async def test_a_wrong_request_fails_alone(code):
    model = Model(code=code)
    good, bad, also = await run(model, [rows(1), rows(-1), rows(2)])
    assert good["y"].tolist() == [[2, 2]]
    assert isinstance(bad, ServingError)
    assert str(bad) == "negative"
    assert also["y"].tolist() == [[4, 4]]


@in_virtual_time
async def test_a_batch_that_the_server_cannot_run_is_not_run_again():
    model = Model(code=Code.UNAVAILABLE)
    assert [str(each) for each in await run(model, [rows(-1), rows(2)])] == ["negative"] * 2
    assert model.batches == [2]


@in_virtual_time
async def test_random_cancellations_harm_no_other():
    chance = random.Random(3)
    model = Model(0.002)
    batcher = Batcher(model.run, 8, 0.002)

    async def one(i):
        await asyncio.sleep(chance.uniform(0, 0.05))
        return await batcher.run(SPEC, rows(i))

    tasks = [asyncio.create_task(one(i)) for i in range(400)]
    for i, task in enumerate(tasks):
        if i % 3 == 0:
            asyncio.get_running_loop().call_later(chance.uniform(0, 0.06), task.cancel)
    done = await asyncio.gather(*tasks, return_exceptions=True)
    await asyncio.sleep(0.02)
    assert asyncio.all_tasks() == {asyncio.current_task()}
    cancelled = [e for e in done if isinstance(e, asyncio.CancelledError)]
    assert 20 < len(cancelled) < 134
    assert len(model.batches) < 300
    for i, answer in enumerate(done):
        if not isinstance(answer, asyncio.CancelledError):
            assert answer["y"].tolist() == [[2 * i, 2 * i]]
    assert batcher._waiting_rows == 0


@in_virtual_time
async def test_a_cancelled_request_takes_its_rows_out_of_a_batch_not_sent():
    model = Model()
    batcher = Batcher(model.run, 8, 0.05)
    stays = asyncio.create_task(batcher.run(SPEC, rows(1)))
    leaves = asyncio.create_task(batcher.run(SPEC, rows(2)))
    await asyncio.sleep(0.01)
    leaves.cancel()
    await stays
    assert model.batches == [1]


@in_virtual_time
async def test_rows_that_wait_are_bounded():
    model = Model(0.02)
    done = await run(model, [rows(i, 4) for i in range(10)], max_waiting_rows=20)
    refused = [e for e in done if isinstance(e, ServingError)]
    assert len(refused) == 5
    assert all("Too many rows wait" in str(e) for e in refused)


@pytest.mark.parametrize("requests", [1, 2])
@in_virtual_time
async def test_requests_whose_answers_have_other_rows_are_answered_alone(requests):
    async def sums(_signature, inputs):
        return {"y": inputs["x"].sum(), "rows": np.zeros(3)}

    batcher = Batcher(sums, 8, 0.002)
    answers = await asyncio.gather(*(batcher.run(SPEC, rows(i)) for i in range(requests)))
    assert [answer["y"] for answer in answers] == [2.0 * i for i in range(requests)]


def vectors(*names):
    return [tensor(name, "int64", None) for name in names]


VALUES, SCORES = [tensor("x", "float", None)], [tensor("y", "float", None)]


@pytest.mark.parametrize(
    ("inputs", "outputs", "is_batchable"),
    [
        (VALUES, SCORES, True),
        ([tensor("x", "float")], SCORES, False),
        (VALUES, [tensor("y", "float")], False),
        ([tensor("x", "float", 3)], SCORES, False),
        ([], SCORES, False),
        ([tensor("x", "float", None, None)], [tensor("y", "float", None, 2)], True),
        ([tensor("x", "float", None, None)], [tensor("y", "float", None, None)], False),
        ([tensor("u", "float", None, 2)], [tensor("scores", "float", None, None)], False),
        (vectors("x"), vectors("y_values", "y_row_lengths"), False),
        (vectors("x_values", "x_row_lengths_1"), SCORES, False),
        ([tensor("segment_ids", "int64", None, 9), *vectors("credit_limits")], SCORES, True),
        (vectors("ids", "offsets"), SCORES, False),
        (vectors("ids", "row_splits"), SCORES, False),
        (vectors("ids", "segment_ids"), SCORES, False),
    ],
)
def test_only_signatures_of_rows_are_batched(inputs, outputs, is_batchable):
    assert batchable(signature("s", inputs, outputs)) is is_batchable
