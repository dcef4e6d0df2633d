"""The gateway ends requests that exceed their deadline, or whose client disconnects."""

import asyncio
import contextlib
import random

import numpy as np
import pytest

from server.dependencies import timeout_seconds
from server.engines.embedded.saved_model import SavedModel
from server.request import current_request
from tests.server.support.asgi import PREDICT, ask, make_app, send
from tests.server.support.numpy_engine import FUNCTIONS, NumpyEngine
from tests.server.support.virtual_time import in_virtual_time, run_in_virtual_time


class SlowEngine(NumpyEngine):
    """An engine whose runs take `seconds`. It counts the runs that were cancelled."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.cut_off = 0
        self.calls = []

        async def run(_signature, inputs):
            self.calls.append(current_request())
            try:
                await asyncio.sleep(seconds)
            except asyncio.CancelledError:
                self.cut_off += 1
                raise
            return {"y": np.asarray(inputs["x"])}

        self.servable.run = run


@pytest.mark.parametrize(
    ("headers", "flags"),
    [({"x-request-timeout-ms": "40000"}, {}), ({"grpc-timeout": "40000m"}, {}),
     ({"grpc-timeout": "40000000u"}, {}), ({}, {"request_seconds": "40"})],
)  # fmt: skip
def test_a_request_ends_at_its_deadline(headers, flags):
    engine = SlowEngine(5000)
    reply = ask(make_app(engine, **flags), *PREDICT, headers=headers, run=run_in_virtual_time)
    assert (reply.status, reply.json()) == (504, {"error": "Deadline exceeded"})
    assert (engine.cut_off, engine.leases) == (1, 0)


def test_a_run_with_little_time_left_gets_the_least_timeout():
    model = object.__new__(SavedModel)
    model.signatures = {"f": FUNCTIONS["serving_default"][0]}
    model._alone, model._calls, model._is_endless = contextlib.nullcontext(), {}, True
    model._prepare = lambda _, timeout: (lambda _: [timeout], [0])
    asked = (1e-5, 0.128, 0.129, 60.0)
    given = [int(model.run("f", {"x": None}, seconds)["y"]) for seconds in asked]
    assert given == [128, 128, 256, 65536]  # milliseconds


def test_a_client_cannot_ask_for_more_than_the_gateway_gives():
    assert timeout_seconds({b"x-request-timeout-ms": b"999999999"}, 60) == 60
    engine = SlowEngine(0)
    ask(make_app(engine, request_seconds="7000"), *PREDICT)
    assert 60 < engine.calls[0].remaining() <= 7000


@pytest.mark.parametrize(
    "headers",
    [*({"x-request-timeout-ms": text} for text in ("soon", "-1", "0", "000")),
     {"grpc-timeout": "5"}],
)  # fmt: skip
def test_a_malformed_timeout_is_refused(headers):
    reply = ask(make_app(SlowEngine(0)), *PREDICT, headers=headers)
    assert reply.status == 400
    assert "Received: " in reply.error


def test_trace_and_request_id_go_on_to_the_engine():
    engine = SlowEngine(0)
    headers = {"traceparent": "00-ab-cd-01", "x-request-id": "abc", "cookie": "secret"}
    ask(make_app(engine), *PREDICT, headers=headers)
    assert dict(engine.calls[0].metadata) == {"x-request-id": "abc", "traceparent": "00-ab-cd-01"}


@in_virtual_time
async def test_work_ends_when_the_client_leaves():
    engine = SlowEngine(30)
    app = make_app(engine)
    # FastAPI's own middleware fails if there is no answer at all.
    app.middleware("http")(lambda request, call_next: call_next(request))
    async with app.router.lifespan_context(app):
        assert (await send(app, *PREDICT, leaves=0.05)).status == 499
        metrics = await send(app, "GET", "/metrics")
    assert (engine.cut_off, engine.leases) == (1, 0)
    told = 'gateway_requests_total{code="499",model="m",verb="predict"} 1.0'
    assert told in metrics.body.decode()


@in_virtual_time
async def test_random_disconnects_leave_no_tasks_and_no_leases():
    engine = SlowEngine(0.03)
    app = make_app(engine)
    chance = random.Random(1)
    async with app.router.lifespan_context(app):
        seconds = [chance.uniform(0, 0.05) for _ in range(400)]
        await asyncio.gather(*(send(app, *PREDICT, leaves=each) for each in seconds))
        await asyncio.sleep(0.05)
        assert asyncio.all_tasks() == {asyncio.current_task()}
    assert engine.leases == 0
    assert 0 < engine.cut_off < 400


def test_quick_answers_start_no_task_to_watch_the_client():
    counts = []

    def count(x):
        counts.append(len(asyncio.all_tasks()))
        return {"y": x}

    functions = {"serving_default": (FUNCTIONS["serving_default"][0], count)}
    assert ask(make_app(NumpyEngine(functions)), *PREDICT).status == 200
    assert counts == [1], "the task that sends the request also runs it"
