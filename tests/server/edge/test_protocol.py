"""Connections write an answer with few system calls."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import sys

import numpy as np
import pytest
import uvloop
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from server.app import create_app
from server.dataplane.answer import Answer
from server.edge.http.protocol import GatheringTransport, WholeMessages
from server.edge.http.responses import _head
from server.process.server import _config
from server.settings import load_settings
from tests.server.support.numpy_engine import NumpyEngine
from tests.server.support.recording_transport import RecordingTransport
from tests.support.applies import applies_if

HEAD, ROWS, FOUND = b"HTTP/1.1 200 OK\r\n\r\n", bytes(256_000), bytes(1_000)


async def gather(*parts: bytes, close: bool = False) -> tuple[RecordingTransport, list[int]]:
    """Writes parts; returns the transport, and the number of calls before the turn's end."""
    recorder = RecordingTransport()
    transport = GatheringTransport(recorder, asyncio.get_running_loop())
    before = []
    for part in parts:
        transport.write(part)
        before.append(len(recorder.writes))
    if close:
        transport.close()
        assert recorder.closed
    await asyncio.sleep(0)
    return recorder, before


def test_a_head_and_its_body_are_one_write():
    recorder, before = asyncio.run(gather(HEAD, ROWS, FOUND))
    assert recorder.writes == [[HEAD, ROWS, FOUND]]
    assert before == [0, 0, 0]


def test_a_large_body_is_not_held_back():
    recorder, before = asyncio.run(gather(HEAD, ROWS, ROWS, ROWS))
    assert before == [0, 0, 1, 1]
    assert recorder.received == HEAD + 3 * ROWS


def test_closing_writes_the_answer_first():
    recorder, _ = asyncio.run(gather(HEAD, close=True))
    assert recorder.writes == [[HEAD]]


def test_several_parts_follow_what_was_gathered():
    async def run(*parts):
        recorder = RecordingTransport()
        transport = GatheringTransport(recorder, asyncio.get_running_loop())
        transport.write(HEAD)
        transport.writelines(parts)
        at_once = len(recorder.writes)
        await asyncio.sleep(0)
        return at_once, recorder.writes

    assert asyncio.run(run(ROWS, FOUND)) == (0, [[HEAD, ROWS, FOUND]])
    assert asyncio.run(run(ROWS, ROWS)) == (1, [[HEAD, ROWS, ROWS]])


def test_a_connection_that_closed_meanwhile_gets_nothing():
    async def run():
        recorder = RecordingTransport()
        GatheringTransport(recorder, asyncio.get_running_loop()).write(HEAD)
        recorder.closed = True
        await asyncio.sleep(0)
        return recorder.writes

    assert asyncio.run(run()) == []


@pytest.mark.parametrize("uv", [True, False])
def test_a_socket_gets_all_bytes_in_order(uv):
    """Both event loops write gathered parts."""
    parts = [HEAD, memoryview(ROWS), b"x" * 400_000, FOUND]
    expected = b"".join(parts)

    async def run():
        ours, theirs = socket.socketpair()
        theirs.setblocking(False)
        loop = asyncio.get_running_loop()
        transport, _ = await loop.create_connection(asyncio.Protocol, sock=ours)
        gathering = GatheringTransport(transport, loop)
        for part in parts:
            gathering.write(part)
        gathering.close()
        received = b""
        while piece := await loop.sock_recv(theirs, 1 << 20):
            received += piece
        theirs.close()
        return received

    loop = uvloop.new_event_loop() if uv else asyncio.new_event_loop()
    with contextlib.closing(loop):
        assert loop.run_until_complete(run()) == expected


LOOKUP = (
    "POST /v1/models/m:lookup?table=user HTTP/1.1",
    "Host: gateway",
    "Accept: application/octet-stream",
    "Content-Type: application/octet-stream",
    "X-Request-Id: chosen",
)


def post(*more: str, head=LOOKUP, body: bytes = np.array([7, 9], "<i8").tobytes()) -> bytes:
    """Returns a request's bytes: by default a lookup of two ids, in bytes."""
    lines = [*head, f"Content-Length: {len(body)}", *more]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def answers(*pieces: bytes, before=lambda _: None, **options) -> list[list[bytes]]:
    """Sends bytes to a gateway with numpy functions; returns what each call wrote to the client."""

    async def run():
        settings = load_settings(model_dir="unused", **options)
        app = create_app(settings, NumpyEngine())
        config = _config(app, settings, "off")
        config.load()
        state = ServerState()
        state.default_headers = [(b"date", b"today")]
        protocol = config.http_protocol_class(config, state, {})
        recorder = RecordingTransport()
        async with app.router.lifespan_context(app):
            protocol.connection_made(recorder)
            before(protocol)
            for piece in pieces:
                protocol.data_received(piece)
                await asyncio.sleep(0)
            while state.tasks:
                await asyncio.sleep(0)
            await asyncio.sleep(0)
            protocol.connection_lost(None)
        assert recorder.closed
        return recorder.writes

    return asyncio.run(run())


def parsed(written: list[list[bytes]]) -> tuple[bytes, set[bytes], bytes]:
    head, _, body = b"".join(b"".join(map(bytes, parts)) for parts in written).partition(
        b"\r\n\r\n"
    )
    status, *headers = head.split(b"\r\n")
    return status, set(headers), body


@pytest.fixture
def by_messages(monkeypatch):
    """Returns a function like `answers`, of a gateway that only uses ASGI's messages."""

    def ask(*pieces, **options):
        with monkeypatch.context() as patch:
            patch.setattr(WholeMessages, "body", lambda *_: None)
            patch.setattr(WholeMessages, "answer", lambda *_: False)
            return answers(*pieces, **options)

    return ask


def test_a_whole_answer_is_the_answer_that_messages_send(by_messages):
    written = answers(post())
    status, headers, body = parsed(written)
    assert (status, headers, body) == parsed(by_messages(post()))
    assert status == b"HTTP/1.1 200 OK"
    assert {b"date: today", b"x-request-id: chosen", b"content-length: 18"} <= headers
    assert np.frombuffer(body[:16], "<f4").tolist() == [1, 2, -1, -1]
    assert body[16:] == b"\1\0"
    assert len(written) == 1


@applies_if(sys.version_info >= (3, 11), "Python 3.11: before it each request has a task")
def test_only_a_request_that_waits_has_a_task(monkeypatch):
    tasks = []

    def start(protocol, cycle, app):
        tasks.append(cycle)
        started(protocol, cycle, app)

    started = HttpToolsProtocol._start_asgi_task
    monkeypatch.setattr(HttpToolsProtocol, "_start_asgi_task", start)
    request = post()
    assert answers(request, request + request)
    assert not tasks
    assert answers(request[:-9], request[-9:])
    assert len(tasks) == 1


def test_a_body_in_pieces_is_read_by_messages():
    request = post()
    assert parsed(answers(request[:-9], request[-9:])) == parsed(answers(request))


def test_pipelined_requests_are_answered_in_order():
    one, two = post(), post(body=np.array([8], "<i8").tobytes())
    together, *apart = (
        b"".join(b"".join(map(bytes, parts)) for parts in answers(each))
        for each in (one + two, one, two)
    )
    assert together == b"".join(apart)


@pytest.mark.parametrize(
    "request_bytes",
    [post("Connection: close"), post(head=("POST /v1/models/m:lookup HTTP/1.0", *LOOKUP[1:]))],
)
def test_a_connection_that_ends_gets_its_answer_by_messages(request_bytes, by_messages):
    status, headers, body = parsed(answers(request_bytes))
    assert (status, headers, body) == parsed(by_messages(request_bytes))
    assert b"connection: close" in headers


def test_the_answer_to_head_has_no_body(monkeypatch):
    async def respond(*_):
        return Answer(b"body")

    monkeypatch.setattr("server.edge.http.v1.V1.read", lambda *_: None)
    monkeypatch.setattr("server.edge.http.v1.V1.respond", respond)
    _, headers, body = parsed(answers(post(head=[LOOKUP[0].replace("POST", "HEAD"), *LOOKUP[1:]])))
    assert b"content-length: 4" in headers
    assert body == b""


def test_a_client_that_reads_slowly_is_waited_for():
    def pause(protocol):
        protocol.pause_writing()
        asyncio.get_running_loop().call_later(0.05, lambda: (seen.append(True), resume(protocol)))

    def resume(protocol):
        assert not protocol.transport._transport.writes
        protocol.resume_writing()

    seen: list[bool] = []
    assert parsed(answers(post(), before=pause))[0] == b"HTTP/1.1 200 OK"
    assert seen


def test_a_whole_body_over_the_limit_is_refused():
    chunked = "\r\n".join([*LOOKUP, "Transfer-Encoding: chunked"]).encode() + b"\r\n\r\n"
    chunked += b"10\r\n" + bytes(16) + b"\r\n0\r\n\r\n"
    assert parsed(answers(chunked))[0] == b"HTTP/1.1 200 OK"
    assert parsed(answers(chunked, max_body_bytes=15))[0].startswith(b"HTTP/1.1 413")


def test_a_header_cannot_hold_a_line_end():
    with pytest.raises(ValueError, match="line end"):
        _head(200, "text/plain", None, (("x", "a\r\nset-cookie: b"),))
