"""The connections to one model server, against a gRPC server that bounds the calls of each."""

from __future__ import annotations

import asyncio
from collections import Counter

import grpc
import pytest

from server.engines.tfserving.breaker import Breaker
from server.engines.tfserving.channels import ChannelOptions
from server.engines.tfserving.endpoint import Endpoint, UpstreamAddress
from server.engines.tfserving.protos import load_protos
from server.errors import Code, ServingError

STREAMS = 4


class Counting(load_protos().prediction_service.PredictionServiceServicer):
    """Answers when it is told to, and knows who asks at once."""

    def __init__(self):
        self.peers = set()
        self.asking = []
        self.go_on = asyncio.Event()

    async def Predict(self, request, context):  # noqa: N802
        peer = context.peer()
        self.peers.add(peer)
        self.asking.append(peer)
        try:
            await self.go_on.wait()
            return load_protos().predict.PredictResponse(model_spec=request.model_spec)
        finally:
            self.asking.remove(peer)


async def with_server(channels, work):
    service = Counting()
    server = grpc.aio.server(options=[("grpc.max_concurrent_streams", STREAMS)])
    load_protos().prediction_service.add_PredictionServiceServicer_to_server(service, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    endpoint = Endpoint(UpstreamAddress("u", f"127.0.0.1:{port}"), Breaker(5, 1))
    endpoint.open(load_protos(), ChannelOptions(channels=channels))
    try:
        return await work(endpoint, service)
    finally:
        service.go_on.set()
        await endpoint.close()
        await server.stop(0)


def ask(endpoint, timeout=20):
    request = load_protos().predict.PredictRequest()
    return asyncio.create_task(endpoint.call("Predict", request, timeout))


async def most_at_once(service):
    """Returns how many calls run once no more arrive."""
    seen = -1
    while len(service.asking) != seen:
        seen = len(service.asking)
        await asyncio.sleep(0.3)
    return seen


@pytest.mark.parametrize("channels", [1, 2])
def test_each_channel_is_a_connection_and_calls_are_spread_evenly(channels):
    async def work(endpoint, service):
        # The server tells its bound with the connection, so that comes first.
        service.go_on.set()
        await asyncio.gather(*(ask(endpoint) for _ in range(channels)))
        service.go_on.clear()
        calls = [ask(endpoint) for _ in range(3 * STREAMS)]
        await asyncio.sleep(0.5)
        running = await most_at_once(service)
        service.go_on.set()
        # The server refuses some that waited: for it the calls that they follow have not ended yet.
        await asyncio.gather(*calls, return_exceptions=True)
        return running, len(service.peers)

    assert asyncio.run(with_server(channels, work)) == (channels * STREAMS, channels)


def test_a_second_connection_is_made_only_when_calls_overlap():
    async def work(endpoint, service):
        service.go_on.set()
        for _ in range(5):
            await ask(endpoint)
        alone = len(service.peers)
        service.go_on.clear()
        calls = [ask(endpoint) for _ in range(2)]
        await asyncio.sleep(0.5)
        service.go_on.set()
        await asyncio.gather(*calls)
        return alone, len(service.peers)

    assert asyncio.run(with_server(2, work)) == (1, 2)


def test_calls_that_end_early_make_room_on_their_channel():
    async def work(endpoint, service):
        for _ in range(3):
            left = [ask(endpoint) for _ in range(4)] + [ask(endpoint, 0.1)]
            await asyncio.sleep(0.2)
            for call in left[:4]:
                call.cancel()
            done = await asyncio.gather(*left, return_exceptions=True)
            assert isinstance(done[4], ServingError)
            assert done[4].code is Code.DEADLINE_EXCEEDED
        calls = [ask(endpoint) for _ in range(STREAMS)]
        await asyncio.sleep(0.5)
        loads = Counter(service.asking)
        service.go_on.set()
        await asyncio.gather(*calls)
        return sorted(loads.values())

    assert asyncio.run(with_server(2, work)) == [STREAMS // 2] * 2
