"""Connections to one model server, tested with a gRPC server that limits calls per connection."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections import Counter

import grpc
import pytest

from server.engines.upstream.breaker import Breaker
from server.engines.upstream.channels import ChannelOptions
from server.engines.upstream.endpoint import Endpoint, UpstreamAddress
from server.errors import Code, ServingError, StartError
from server.process.gateway import Gateway
from server.protos.modules import load_protos
from server.settings import load_settings
from tests.server.support.eventually import PATIENCE_S, eventually
from tests.server.support.tls_files import tls_files

STREAMS = 4


class Counting:
    """A model server whose answers wait for `go_on`. Records the peer of each waiting call."""

    def __init__(self):
        self.peers = set()
        self.asking = []
        self.go_on = asyncio.Event()

    async def Predict(self, request, context):  # noqa: N802
        peer = context.peer()
        self.peers.add(peer)
        self.metadata = dict(context.invocation_metadata())
        self.asking.append(peer)
        try:
            await self.go_on.wait()
            return load_protos().predict.PredictResponse(model_spec=request.model_spec)
        finally:
            self.asking.remove(peer)


async def with_server(options, work, tls=None):
    service = Counting()
    server = grpc.aio.server(options=[("grpc.max_concurrent_streams", STREAMS)])
    request, response = load_protos().prediction_service.methods["Predict"]
    handler = grpc.unary_unary_rpc_method_handler(
        service.Predict, request.FromString, response.SerializeToString
    )
    name = load_protos().prediction_service.name
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler(name, {"Predict": handler}),)
    )
    if tls is None:
        port = server.add_insecure_port("127.0.0.1:0")
    else:
        certificate, key = (path.read_bytes() for path in tls)
        credentials = grpc.ssl_server_credentials([(key, certificate)], certificate, True)
        port = server.add_secure_port("127.0.0.1:0", credentials)
    await server.start()
    service.port = port
    endpoint = Endpoint(UpstreamAddress("u", f"127.0.0.1:{port}"), Breaker(5, 1))
    endpoint.open(load_protos(), options)
    try:
        return await work(endpoint, service)
    finally:
        service.go_on.set()
        await endpoint.close()
        await server.stop(0)


def ask(endpoint, timeout=PATIENCE_S):
    return asyncio.create_task(endpoint.call("Predict", b"", timeout))


@pytest.mark.parametrize("channels", [1, 2])
def test_each_channel_is_a_connection_and_calls_are_spread_evenly(channels):
    async def work(endpoint, service):
        # Connect all channels first: the client learns the server's limit on calls only when it
        # connects.
        service.go_on.set()
        await asyncio.gather(*(ask(endpoint) for _ in range(channels)))
        service.go_on.clear()
        calls = [ask(endpoint) for _ in range(3 * STREAMS)]
        # Each connection is full, because the server takes no more calls over one.
        await eventually(lambda: len(service.asking) == channels * STREAMS)
        running = Counter(service.asking)
        service.go_on.set()
        # Ignore errors. When a call ends, the client sends a waiting call. The server may still
        # count the ended call among the running ones. Then it refuses the new call, because that
        # would exceed its limit of STREAMS calls per connection.
        await asyncio.gather(*calls, return_exceptions=True)
        return sorted(running.values()), len(service.peers)

    options = ChannelOptions(channels=channels)
    assert asyncio.run(with_server(options, work)) == ([STREAMS] * channels, channels)


def test_a_second_connection_is_made_only_when_calls_overlap():
    async def work(endpoint, service):
        service.go_on.set()
        for _ in range(5):
            await ask(endpoint)
        alone = len(service.peers)
        service.go_on.clear()
        calls = [ask(endpoint) for _ in range(2)]
        await eventually(lambda: len(service.asking) == 2)
        service.go_on.set()
        await asyncio.gather(*calls)
        return alone, len(service.peers)

    assert asyncio.run(with_server(ChannelOptions(), work)) == (1, 2)


@contextlib.asynccontextmanager
async def one_connection_to(port):
    """Forwards the first connection to `port` and closes all others. Yields the proxy's port."""
    others = asyncio.Event()
    taken = []

    async def pump(reader, writer):
        with contextlib.closing(writer), contextlib.suppress(ConnectionError):
            while data := await reader.read(1 << 16):
                writer.write(data)

    async def accept(reader, writer):
        taken.append(writer)
        if len(taken) > 1:
            writer.close()
            others.set()
            return
        there = await asyncio.open_connection("127.0.0.1", port)
        await asyncio.gather(pump(reader, there[1]), pump(there[0], writer))

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1], others
        for each in taken:
            each.close()


def test_calls_keep_off_a_channel_that_cannot_connect_while_another_can():
    async def work(_, service):
        async with one_connection_to(service.port) as (port, others):
            behind = Endpoint(UpstreamAddress("behind", f"127.0.0.1:{port}"), Breaker(5, 1))
            behind.open(load_protos(), ChannelOptions(channels=2))
            first = ask(behind)
            await eventually(lambda: service.asking)
            with pytest.raises(ServingError, match="cannot be reached"):
                await ask(behind)  # this call detects the broken connection
            await others.wait()
            calls = [ask(behind) for _ in range(STREAMS - 1)]
            await eventually(
                lambda: len(service.asking) == STREAMS or any(call.done() for call in calls)
            )
            service.go_on.set()
            done = await asyncio.gather(first, *calls, return_exceptions=True)
            await behind.close()
            return [each for each in done if isinstance(each, Exception)]

    assert asyncio.run(with_server(ChannelOptions(), work)) == []


def test_calls_that_end_early_make_room_on_their_channel():
    async def work(endpoint, service):
        for _ in range(3):
            left = [ask(endpoint) for _ in range(4)] + [ask(endpoint, 0.1)]
            await asyncio.wait(left[4:])
            await eventually(lambda: len(service.asking) == 4)
            for call in left[:4]:
                call.cancel()
            done = await asyncio.gather(*left, return_exceptions=True)
            assert isinstance(done[4], ServingError)
            assert done[4].code is Code.DEADLINE_EXCEEDED
        await eventually(lambda: not service.asking)
        calls = [ask(endpoint) for _ in range(STREAMS)]
        await eventually(lambda: len(service.asking) == STREAMS)
        loads = Counter(service.asking)
        service.go_on.set()
        await asyncio.gather(*calls)
        return sorted(loads.values())

    assert asyncio.run(with_server(ChannelOptions(), work)) == [STREAMS // 2] * 2


def test_a_server_that_wants_a_certificate_and_a_token_gets_them(tmp_path):
    certificate, key = tls_files(tmp_path)

    async def work(endpoint, service):
        service.go_on.set()
        await ask(endpoint)
        return service.metadata["authorization"]

    shown = ChannelOptions(ca=certificate, certificate=(certificate, key), token="secret")
    assert asyncio.run(with_server(shown, work, (certificate, key))) == "Bearer secret"
    with pytest.raises(ServingError) as caught:
        asyncio.run(with_server(ChannelOptions(ca=certificate), work, (certificate, key)))
    assert caught.value.code is Code.UNAVAILABLE


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"upstream_cert": __file__}, "needs --upstream-ca, --upstream-cert and --upstream-key"),
        ({"upstream_cert": __file__, "upstream_key": __file__}, "needs --upstream-ca"),
        ({"upstream_token_file": "/nowhere"}, "--upstream-token-file=/nowhere"),
        ({"upstream_token_file": __file__}, "must hold one key or token"),
    ],
)
def test_settings_for_upstreams_that_cannot_be_used_are_refused(wrong, said):
    settings = load_settings(engine="tfserving", upstreams="h:1", models="m", port=0, **wrong)
    with pytest.raises(StartError, match=re.escape(said)):
        Gateway(settings)
