"""Requests that repeat a head are answered as if the parser had read them."""

from __future__ import annotations

import asyncio
import itertools
import re
from contextlib import contextmanager

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from uvicorn.server import ServerState

from server.app import create_app
from server.dataplane.keys import KeyRing
from server.dataplane.lifecycle import Lifecycle
from server.edge.http.idle_timer import IdleTimer
from server.edge.http.protocol import PromptProtocol
from server.process.server import _config
from server.settings import load_settings
from tests.server.support.gateway_process import make_key
from tests.server.support.numpy_engine import NumpyEngine
from tests.server.support.recording_transport import RecordingTransport
from tests.server.support.virtual_time import run_in_virtual_time

RAW = ("Accept: application/octet-stream", "Content-Type: application/octet-stream")
LOOKUP = "POST /v1/models/m:lookup?table=user HTTP/1.1"


def request(line: str, *headers: str, body: bytes = b"", host: str = "a") -> bytes:
    lines = [line, f"Host: {host}", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def post(line: str, body: bytes, *headers: str, **options: str) -> bytes:
    return request(line, *headers, f"Content-Length: {len(body)}", body=body, **options)


def lookup(*ids: int, headers=(), **options: str) -> bytes:
    return post(LOOKUP, np.array(ids, "<i8").tobytes(), *RAW, *headers, **options)


def slow_engine() -> NumpyEngine:
    """Returns an engine that lets other callbacks run before it answers `serving_default`."""
    engine = NumpyEngine()
    plain = engine.servable.run

    async def run(name, inputs):
        for _ in range(5 if name == "serving_default" else 0):
            await asyncio.sleep(0)
        return await plain(name, inputs)

    engine.servable.run = run
    return engine


class Gateway:
    """A gateway with numpy functions, on connections in memory."""

    def __init__(self, loop, app, **options):
        self.loop, self.app, self.parsed = loop, app, 0
        config = _config(app, load_settings(model_dir="unused", **options), "off")
        config.load()
        gateway, plain = self, config.http_protocol_class

        class Counted(plain):
            def on_headers_complete(self):
                gateway.parsed += 1
                super().on_headers_complete()

        self.config, self.kind, self.state = config, Counted, ServerState()
        self.state.default_headers = [(b"date", b"today")]

    def connect(self):
        protocol = self.kind(self.config, self.state, {}, self.loop)
        protocol.connection_made(RecordingTransport())
        return protocol

    def send(self, protocol, *pieces: bytes) -> bytes:
        """Sends pieces in one turn of the event loop; returns the answers to them."""

        def receive():
            for piece in pieces:
                if not client.closed:
                    protocol.data_received(piece)

        client = protocol.transport._transport
        before = len(client.received)
        self.loop.run_until_complete(self.settle(receive))
        return client.received[before:]

    async def settle(self, call, *arguments):
        """Calls a function in the event loop, and runs the tasks that need no time."""
        call(*arguments)
        for _ in range(30):
            await asyncio.sleep(0)

    def end(self, protocol):
        self.loop.run_until_complete(self.settle(protocol.connection_lost, None))


@contextmanager
def serving(lifecycle=None, keys=None, **options):
    loop = asyncio.new_event_loop()
    try:
        settings_ = load_settings(model_dir="unused", **options)
        app = create_app(settings_, slow_engine(), lifecycle, keys=keys)
        running = app.router.lifespan_context(app)
        loop.run_until_complete(running.__aenter__())
        yield Gateway(loop, app, **options)
        loop.run_until_complete(running.__aexit__(None, None, None))
    finally:
        loop.close()


@pytest.fixture(scope="module")
def gateway():
    with serving(rate_per_second=0, max_body_bytes=400) as made:
        yield made


PREDICT = "POST /v1/models/m:predict HTTP/1.1"
ROW = b'{"instances": [1.0]}'
CHUNKED = b"8\r\n" + np.array([7], "<i8").tobytes() + b"\r\n0\r\n\r\n"
REQUESTS = [
    lookup(7, 9),
    lookup(8, 7),
    lookup(7, 9),
    lookup(7, 8, 9),
    lookup(7, 9, headers=["X-Request-Id: b"]),
    lookup(7, 9, headers=["X-Request-Timeout-Ms: x"]),
    lookup(7, 9, host="b"),
    lookup(*range(60)),  # too large
    lookup(7, 9) + b"\r\n",
    lookup(7, 9, headers=["Connection: keep-alive"]),
    lookup(7, 9, headers=["Connection: close"]),
    lookup(7, 9, headers=["Expect: 100-continue"]),
    lookup(7, 9, headers=["Connection: upgrade", "Upgrade: other"]),
    request(LOOKUP, *RAW, "Transfer-Encoding: chunked", body=CHUNKED),
    post(LOOKUP.replace("1.1", "1.0"), bytes(16), *RAW),
    post(PREDICT, ROW),
    post(PREDICT, ROW.replace(b"1", b"2")),
    post(PREDICT, ROW.replace(b"}", b"]")),
    post(PREDICT, b'{"instances": "\r\n\r\n"}'),
    post(PREDICT.replace("POST", "HEAD"), ROW),
    post("POST /v1/models/none:predict HTTP/1.1", ROW),
    post("POST /nowhere HTTP/1.1", ROW),
    request("GET /v1/models/m HTTP/1.1"),
    request("GET /v1/models/m HTTP/1.1"),
    request("GET /v2/health/ready HTTP/1.1"),
    request("GET /livez HTTP/1.1"),
    request("GET /livez HTTP/1.1", "Host: again"),
    request("no request"),
    b"\r\n",
]


@st.composite
def turns(draw):
    """Draws requests that often repeat: a list of turns, each with the pieces that arrive."""
    some = draw(st.lists(st.sampled_from(REQUESTS), min_size=1, max_size=3))
    sent = draw(st.lists(st.sampled_from(some), min_size=2, max_size=8))
    data, cuts = b"", set()
    for each in sent:
        head = each.find(b"\r\n\r\n") + 4
        cuts |= {
            len(data) + cut for cut in draw(st.sets(st.sampled_from([0, 0, 9, head, head + 3])))
        }
        data += each
    end = draw(st.sampled_from([len(data), len(data), len(data) - 3]))
    at = sorted({0, end, *(cut for cut in cuts if cut < end)})
    drawn: list[list[bytes]] = [[]]
    for piece in (data[a:b] for a, b in itertools.pairwise(at)):
        drawn[-1].append(piece)
        if draw(st.integers(0, 3)):
            drawn.append([])
    return drawn


def without_ids(answered: bytes) -> bytes:
    return re.sub(rb"(x-request-id|Request id): [0-9a-f]{32}", rb"\1", answered)


def behaviour(gateway, sent: list[list[bytes]], *, repeats: bool):
    """Returns the answers in each turn, and the state of the connection at the end."""
    with pytest.MonkeyPatch.context() as patch:
        if not repeats:
            patch.setattr(PromptProtocol, "repeat", lambda *_: False)
        protocol = gateway.connect()
        told = [without_ids(gateway.send(protocol, *pieces)) for pieces in sent]
    idle = protocol._idle._since is not None
    timed = protocol._head_timer is not None
    closed = protocol.transport.is_closing()
    gateway.end(protocol)
    return told, idle, timed, protocol._idle_bytes, closed


@settings(max_examples=300, deadline=None)
@given(turns())
def test_the_answers_are_those_of_the_parser(gateway, sent):
    assert behaviour(gateway, sent, repeats=True) == behaviour(gateway, sent, repeats=False)


A, SLOW = lookup(7, 9), post(PREDICT, ROW)
# It is refused before its body arrives.
EARLY = request("POST /nowhere HTTP/1.1", "Content-Length: 120")
CASES = {
    "bytes after the body": [[A + b"\r\n"], [A + b"\r\n"], [A], [A]],
    "bytes after a repeated head": [[A], [A], [A], [b"\r\n"]],
    "bytes before a repeated head": [[A], [A], [b"\r\n"], [A]],
    "a head in two pieces": [[A[:9]], [A[9:]], [A[:9]], [A[9:]], [A[9:]]],
    "a body that looks like a request": [[A], [A], [EARLY + bytes(9)], [A], [bytes(240)]],
    "the rest of a body, and a request": [[A], [A[:-4]], *([[A[-4:] + A]] * 3)],
    "a request that waits for another": [[SLOW], [SLOW], [SLOW, SLOW], [SLOW, A, A], [A], [A]],
    "a body that does not end": [[A], [A], [A[:-4]]],
    "a body that ends later": [[A], [A], [A[:-9]], [A[-9:-4]], [A[-4:]], [A]],
    "a client that leaves": [[SLOW], [SLOW], [SLOW[:-4]]],
}


@pytest.mark.parametrize("case", CASES)
def test_a_case_is_answered_as_by_the_parser(gateway, case):
    sent = CASES[case]
    told, *state = behaviour(gateway, sent, repeats=True)
    assert (told, *state) == behaviour(gateway, sent, repeats=False)
    assert told[0].startswith(b"HTTP/1.1 ") or not told[0]


@pytest.mark.parametrize(
    "sent",
    [
        lookup(7, headers=["Connection: close"]),
        lookup(7, headers=["Expect: 100-continue"]),
        lookup(7, headers=["Connection: upgrade", "Upgrade: other"]),
        lookup(7, headers=["X-Long: " + "x" * 5000]),
        lookup(7) + b"\r\n",
        lookup(7) * 2,
        post(LOOKUP.replace("1.1", "1.0"), bytes(16), *RAW),
        request(LOOKUP, *RAW, "Transfer-Encoding: chunked", body=CHUNKED),
    ],
)
def test_some_heads_are_not_kept(gateway, sent):
    protocol = gateway.connect()
    for _ in range(3):
        gateway.send(protocol, sent)
    assert protocol._head is None
    gateway.end(protocol)


def test_requests_have_their_own_ids(gateway):
    protocol = gateway.connect()
    for sent in (lookup(7), lookup(7, headers=["X-Request-Id: mine"])):
        answered = [gateway.send(protocol, sent) for _ in range(3)]
        ids = [re.search(rb"x-request-id: (\S+)", each)[1] for each in answered]
        assert len(set(ids)) == 3 or ids == [b"mine"] * 3
    gateway.end(protocol)


@pytest.mark.parametrize("cut", [None, 0, 3])
def test_the_parser_reads_a_repeated_head_twice(gateway, cut):
    """`cut`: the bytes of the body that arrive with the head; None for all."""

    def ask(*ids):
        sent = lookup(*ids)
        at = len(sent) if cut is None else sent.find(b"\r\n\r\n") + 4 + cut
        return gateway.send(protocol, sent[:at]) + gateway.send(protocol, sent[at:])

    protocol = gateway.connect()
    gateway.parsed = 0
    for ids in ((7, 9), (9, 7), (8, 8), (8, 7)):
        alone = gateway.connect()
        assert without_ids(ask(*ids)) == without_ids(gateway.send(alone, lookup(*ids)))
        gateway.end(alone)
    assert gateway.parsed == 2 + 4
    ask(7, 8, 9)
    gateway.send(protocol, request("GET /livez HTTP/1.1") * 2)
    assert gateway.parsed == 7 + 2
    gateway.end(protocol)


def status(answer: bytes) -> int:
    return int(answer[9:12])


def test_a_removed_key_is_refused(tmp_path):
    (key, line), (_, other) = (make_key(name, "lookup") for name in ("one", "two"))
    file = tmp_path / "keys.yaml"
    file.write_text(f"keys:\n{line}\n{other}\n")
    ring = KeyRing.load(file)
    with serving(keys=ring) as gateway:
        protocol = gateway.connect()
        sent = lookup(7, headers=[f"Authorization: Bearer {key}"])
        assert [status(gateway.send(protocol, sent)) for _ in range(4)] == [200] * 4
        file.write_text(f"keys:\n{other}\n")
        ring.reload()
        assert status(gateway.send(protocol, sent)) == 401
        assert gateway.parsed == 2


def test_a_rate_counts_repeated_heads():
    with serving(rate_per_second=1.5) as gateway:
        protocol = gateway.connect()
        answered = [gateway.send(protocol, lookup(7)) for _ in range(5)]
        assert [status(each) for each in answered] == [200] * 3 + [429] * 2
        assert gateway.parsed == 2


def test_a_draining_gateway_closes_the_connection():
    lifecycle = Lifecycle()
    with serving(lifecycle) as gateway:
        protocol = gateway.connect()
        for _ in range(4):
            assert b"connection: close" not in gateway.send(protocol, lookup(7))
        lifecycle.draining = True
        assert b"connection: close" in gateway.send(protocol, lookup(7))
        assert gateway.parsed == 2
        assert protocol.transport.is_closing()


@pytest.mark.slow  # It waits for timers of its own protocol, which nothing else uses.
def test_an_incomplete_head_after_repeated_ones_is_late():
    with serving(head_seconds=0.05) as gateway:
        protocol = gateway.connect()
        for _ in range(4):
            gateway.send(protocol, lookup(7))
        gateway.send(protocol, lookup(7)[:-4])
        gateway.loop.run_until_complete(asyncio.sleep(0.1))
        assert not protocol.transport.is_closing()  # the body may take longer
        gateway.send(protocol, lookup(7)[-4:])
        gateway.send(protocol, lookup(7)[:20])
        gateway.loop.run_until_complete(asyncio.sleep(0.1))
        assert protocol.transport.is_closing()


def test_a_connection_closes_when_it_was_idle_for_long_enough():
    async def run():
        loop, closed = asyncio.get_running_loop(), []
        timer = IdleTimer(loop, 60, lambda: closed.append(loop.time()))
        for busy in (50, 50, 200):
            timer.start()
            await asyncio.sleep(50)
            timer.stop()
            await asyncio.sleep(busy)
        assert not closed
        timer.start()
        begun = loop.time()
        await asyncio.sleep(59)
        assert not closed
        await asyncio.sleep(100)
        assert closed == [begun + 60]
        timer.start()
        timer.cancel()
        await asyncio.sleep(100)
        assert len(closed) == 1

    run_in_virtual_time(run())
