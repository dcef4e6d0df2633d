"""The choice of an endpoint, the queue, the second attempt, and the catalog of the endpoints."""

import asyncio
import functools
import random

import pytest

from server.engines.upstream.catalog import Catalog
from server.engines.upstream.endpoint import Endpoint, parse_upstreams
from server.engines.upstream.pool import UpstreamPool
from server.errors import Code, ServingError, StartError
from tests.server.support.grpc_port import PROTOS
from tests.server.support.virtual_time import in_virtual_time


class FakeEndpoint(Endpoint):
    """Answers with its name; fails or delays as the test says."""

    def __init__(self, name, seconds=0.0, fails=0, code=Code.UNAVAILABLE):
        super().__init__(name, "")
        self.seconds = seconds
        self.fails = fails
        self.code = code
        self.most = 0
        self.calls = 0

    async def call(self, *_):
        self.calls += 1
        self.most = max(self.most, self.in_flight)
        await asyncio.sleep(self.seconds)
        if self.fails:
            self.fails -= 1
            raise ServingError(self.code, "gone")
        return self.name


@in_virtual_time
async def test_requests_go_to_the_endpoint_with_least_to_do():
    pool = UpstreamPool([FakeEndpoint("slow", 0.05), FakeEndpoint("quick", 0.005)])
    gate = asyncio.Semaphore(4)

    async def one():
        async with gate:
            return await pool.call("Predict", b"", ["slow", "quick"])

    answers = await asyncio.gather(*(one() for _ in range(60)))
    assert answers.count("quick") > 2 * answers.count("slow")


@in_virtual_time
async def test_no_endpoint_exceeds_its_limit_and_other_requests_queue():
    endpoint = FakeEndpoint("a", 0.001)
    pool = UpstreamPool([endpoint])
    answers = await asyncio.gather(*(pool.call("Predict", b"", ["a"]) for _ in range(200)))
    assert answers == ["a"] * 200
    assert endpoint.most == 64
    assert endpoint.in_flight == 0


@in_virtual_time
async def test_too_many_waiting_requests_are_refused_until_some_leave():
    endpoint = FakeEndpoint("a", 0.02)
    chance = random.Random(0)
    pool = UpstreamPool([endpoint])
    running, waiting, refused = 64, 256, 2
    tasks = [
        asyncio.create_task(pool.call("Predict", b"", ["a"]))
        for _ in range(running + waiting + refused)
    ]
    await asyncio.sleep(0.005)
    for task in chance.sample(tasks, 200):
        task.cancel()
    done = await asyncio.gather(*tasks, return_exceptions=True)
    assert await pool.call("Predict", b"", ["a"]) == "a"
    refused = [e for e in done if isinstance(e, ServingError)]
    assert len(refused) == 2
    assert all(e.code is Code.RESOURCE_EXHAUSTED for e in refused)
    assert endpoint.in_flight == 0


@pytest.mark.parametrize("code", [Code.UNAVAILABLE, Code.RESOURCE_EXHAUSTED])
@in_virtual_time
async def test_only_unavailable_is_retried_on_another_endpoint(code):
    bad, good = FakeEndpoint("bad", fails=1000, code=code), FakeEndpoint("good")
    pool = UpstreamPool([bad, good])
    ask = functools.partial(pool.call, "Predict", b"", ["bad", "good"])
    told = [await asyncio.gather(ask(), return_exceptions=True) for _ in range(200)]
    answers = [str(each) for (each,) in told]
    assert bad.calls > 0  # equally busy endpoints are chosen by chance
    assert answers.count("gone") == (0 if code is Code.UNAVAILABLE else bad.calls)


@in_virtual_time
async def test_a_request_is_sent_to_two_endpoints_at_most():
    endpoints = [FakeEndpoint(name, fails=9) for name in "abc"]
    with pytest.raises(ServingError, match="gone"):
        await UpstreamPool(endpoints).call("Predict", b"", list("abc"))
    assert sum(endpoint.calls for endpoint in endpoints) == 2


@in_virtual_time
async def test_endpoints_that_are_drained_or_left_out_get_nothing():
    drained, silent = FakeEndpoint("drained"), FakeEndpoint("silent")
    drained.drained = True
    silent.missed = 2
    pool = UpstreamPool([drained, silent])
    with pytest.raises(ServingError) as caught:
        await pool.call("Predict", b"", ["drained", "silent"])
    assert caught.value.code is Code.UNAVAILABLE
    assert pool.states() == {"drained": "drained", "silent": "left out"}
    assert (drained.calls, silent.calls) == (0, 0)


@pytest.mark.parametrize(
    "text", ["", "host", "host:0", "host:99999", "a=x:1,a=y:1", "http://x:1", "x:1,,y:1"]
)
def test_an_invalid_list_of_upstreams_is_refused(text):
    with pytest.raises(StartError, match="Received: "):
        parse_upstreams(text)


class Polled(Endpoint):
    """Serves one version. While `error` is set, polls of it fail so."""

    def __init__(self, name: str, version: int) -> None:
        super().__init__(name, "")
        self.version = version
        self.error: Code | None = None

    async def call(self, *_: object) -> bytes:
        if self.error is not None:
            raise ServingError(self.error, "no answer")
        status = PROTOS.GetModelStatusResponse()
        status.model_version_status.add(version=self.version, state=30)
        return bytes(status.SerializeToString())


def polled(*endpoints: Polled) -> Catalog:
    catalog = Catalog(["m"], UpstreamPool(list(endpoints)))
    asyncio.run(catalog.refresh())
    return catalog


def test_an_endpoint_that_misses_two_polls_is_out_of_service_until_it_answers() -> None:
    old, new = Polled("old", 3), Polled("new", 4)
    new.drained = True
    catalog = polled(old, new)
    assert catalog.latest("m") == 3
    old.error = Code.DEADLINE_EXCEEDED
    asyncio.run(catalog.refresh())
    assert (catalog.endpoints_of("m", 3), catalog.latest("m")) == (["old"], 3)
    asyncio.run(catalog.refresh())
    assert catalog.latest("m") == 4  # only the drained endpoint is left
    assert not catalog.serves("m")
    assert [status.version for status in catalog.statuses("m")] == [4]
    old.error = None
    asyncio.run(catalog.refresh())
    assert (catalog.endpoints_of("m", 3), catalog.latest("m")) == (["old"], 3)


def test_an_endpoint_that_fails_gets_no_request_that_another_can_answer() -> None:
    one, two = Polled("one", 3), Polled("two", 3)
    catalog = polled(one, two)
    assert catalog.endpoints_of("m", 3) == ["one", "two"]
    one.error = Code.DEADLINE_EXCEEDED
    asyncio.run(catalog.refresh())
    assert catalog.endpoints_of("m", 3) == ["two"]
    two.error = Code.UNAVAILABLE
    asyncio.run(catalog.refresh())
    assert catalog.latest("m") is None
