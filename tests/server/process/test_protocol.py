"""HTTP/1.1 connections: pipelined requests, slow clients, and limits on time and size."""

import asyncio
import contextlib
import itertools
import logging
import socket
from unittest import mock

import pytest
from uvicorn.server import ServerState

from server.process import protocol as protocols
from server.process.server import uvicorn_config, with_admin
from server.settings import load_settings
from tests.server.support.asgi import make_app
from tests.server.support.virtual_time import in_virtual_time, run_in_virtual_time

PREDICT = "POST /v1/models/m:predict HTTP/1.1"
ROW = b'{"instances": [1.0]}'


def post(*headers: str, line: str = PREDICT, body: bytes = ROW) -> bytes:
    lines = [line, "Host: a", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


class RecordingTransport(asyncio.Transport):
    """A transport that keeps all bytes that the client received."""

    def __init__(self, peer="127.0.0.1"):
        super().__init__({"sockname": ("127.0.0.1", 1), "peername": (peer, 2)})
        self.received = b""
        self.closed = self.aborted = False
        self.reads = True

    def pause_reading(self):
        self.reads = False

    def resume_reading(self):
        self.reads = True

    def write(self, data):
        self.received += data

    def is_closing(self):
        return self.closed

    def close(self):
        self.closed = True

    def abort(self):
        self.closed = self.aborted = True


class Connection:
    """A connection in memory to a gateway with numpy functions."""

    def __init__(self, app, peer="127.0.0.1", **options):
        config = uvicorn_config(app, load_settings(model_dir="unused", **options), "off")
        config.load()
        state = ServerState()
        state.default_headers = [(b"date", b"today")]
        self.protocol = config.http_protocol_class(config, state, {})
        self.client = RecordingTransport(peer)
        self.protocol.connection_made(self.client)

    async def send(self, *pieces: bytes) -> bytes:
        """Sends pieces one after the other; returns the answers to them."""
        before = len(self.client.received)
        for piece in pieces:
            self.protocol.data_received(piece)
            await self.settle()
        return self.client.received[before:]

    async def settle(self) -> None:
        """Runs the tasks that need no time."""
        for _ in range(50):
            await asyncio.sleep(0)

    async def wait_for(self, count: int) -> list[int]:
        """Waits for so many answers, or until the connection closes; returns their statuses."""
        while len(self.statuses()) < count and not self.client.closed:
            await asyncio.sleep(0)
        return self.statuses()

    def statuses(self) -> list[int]:
        return statuses(self.client.received)

    async def check_closes(self, seconds: float) -> None:
        """Checks that a connection that sends nothing stays open for a time, and then closes."""
        await asyncio.sleep(seconds - 1)
        assert not self.client.closed
        await asyncio.sleep(2)
        assert self.client.closed


@contextlib.asynccontextmanager
async def connected(**options):
    app = make_app(**options)
    async with app.router.lifespan_context(app):
        connection = Connection(app, **options)
        yield connection
        connection.protocol.connection_lost(None)


def answers(*pieces: bytes) -> bytes:
    async def run():
        async with connected() as connection:
            return await connection.send(*pieces)

    return run_in_virtual_time(run())


def statuses(answered: bytes) -> list[int]:
    return [int(part[:3]) for part in answered.split(b"HTTP/1.1 ")[1:]]


def without_ids(answered: bytes) -> list[bytes]:
    lines = answered.split(b"\r\n")
    return [line for line in lines if not line.startswith(b"x-request-id: ")]


def test_pipelined_requests_are_answered_in_order():
    one, two = post(), post(body=b'{"instances": [3.0]}')
    together = without_ids(answers(one + two + one))
    assert together == without_ids(answers(one, two, one))
    values = [line.partition(b"}")[0] for line in together if b"predictions" in line]
    assert values == [b'{"predictions":[2.5]', b'{"predictions":[3.5]', b'{"predictions":[2.5]']


@in_virtual_time
async def test_other_clients_are_answered_between_pipelined_requests():
    """One turn of the event loop answers at most one of them."""
    async with connected(rate_per_second="0") as connection:
        connection.protocol.data_received(post() * 100)
        counts = []
        while len(connection.statuses()) < 100:
            counts.append(len(connection.statuses()))
            await asyncio.sleep(0)
    assert counts[0] == 0
    assert max(b - a for a, b in itertools.pairwise(counts)) <= 1


@in_virtual_time
async def test_heads_of_pipelined_requests_do_not_add_up():
    async with connected() as connection:
        connection.protocol.data_received(b"GET /livez HTTP/1.1\r\nHost: ab\r\n\r\n" * 1500)
        assert await connection.wait_for(1500) == [200] * 1500


def test_a_request_with_a_body_that_asks_for_an_upgrade_is_refused_and_nothing_follows():
    upgrade = post("Connection: Upgrade", "Upgrade: h2c", body=b" " * (20 << 10) + ROW)
    answered = answers(upgrade + post(), post())
    assert statuses(answered) == [400]
    assert b"must not ask for an upgrade. Send it without Upgrade." in answered


@in_virtual_time
async def test_a_piece_full_of_requests_is_read_in_parts():
    request = post()
    count = (64 << 10) // len(request)
    async with connected(rate_per_second="0") as connection:
        connection.protocol.data_received(request * count + request[:30])
        assert 0 < len(connection.protocol.pipeline) < count / 3
        await connection.wait_for(count)
        await connection.send(request[30:])
        assert connection.statuses() == [200] * (count + 1)


@in_virtual_time
async def test_a_client_that_sends_as_fast_as_it_is_read_is_answered():
    count = 1000
    to_send = post() * count
    async with connected(rate_per_second="0") as connection:
        while len(connection.statuses()) < count and not connection.client.closed:
            if connection.client.reads:
                connection.protocol.data_received(to_send[:30_000])
                to_send = to_send[30_000:]
                assert len(connection.protocol.waiting) <= 30_000
            await asyncio.sleep(0)
        assert connection.statuses() == [200] * count


@pytest.mark.parametrize("cut", [9, 60, -len(ROW), -3])
def test_a_request_in_pieces_is_answered_as_a_whole_one(cut):
    request = post()
    assert without_ids(answers(request[:cut], request[cut:])) == without_ids(answers(request))


@pytest.mark.parametrize(
    ("line", "status"),
    [(PREDICT.replace("POST", "HEAD"), b"400"), ("HEAD /livez HTTP/1.1", b"200")],
)
def test_the_answer_to_head_has_no_body(line, status):
    head, _, body = answers(post(line=line)).partition(b"\r\n\r\n")
    assert (head[9:12], body) == (status, b"")


@in_virtual_time
async def test_a_client_that_reads_slowly_is_waited_for():
    async with connected() as connection:
        connection.protocol.pause_writing()
        assert await connection.send(post()) == b""
        connection.protocol.resume_writing()
        await connection.settle()
        assert connection.statuses() == [200]


@in_virtual_time
async def test_a_client_that_takes_no_more_of_its_answer_is_left():
    async with connected(body_seconds="30") as connection:
        for _ in range(2):
            connection.protocol.pause_writing()
            await connection.send(post())
            await asyncio.sleep(29)
            assert not connection.client.aborted
            connection.protocol.resume_writing()
            await connection.settle()
        await asyncio.sleep(29)
        connection.protocol.pause_writing()
        await asyncio.sleep(31)
        assert connection.statuses() == [200, 200]
        assert connection.client.aborted


@in_virtual_time
async def test_a_client_that_never_takes_the_rest_of_a_closing_connection_is_left():
    async with connected(body_seconds="30") as connection:
        connection.client.close = lambda: setattr(connection.client, "closed", True)
        await connection.send(post("Connection: close"))
        await asyncio.sleep(29)
        assert (connection.client.closed, connection.client.aborted) == (True, False)
        await asyncio.sleep(2)
        assert connection.client.aborted


@pytest.mark.parametrize("hosts", [b"", b"Host: x\r\nHost: y\r\n", b"Host: x\r\nHost: x\r\n"])
def test_a_request_has_one_host(hosts):
    answered = answers(b"GET /livez HTTP/1.1\r\n" + hosts + b"\r\n")
    assert statuses(answered) == [400]
    assert b"one Host header. Received: %d of them" % hosts.count(b"Host") in answered


def test_a_request_of_http_1_0_needs_no_host():
    assert statuses(answers(b"GET /livez HTTP/1.0\r\n\r\n")) == [200]


AMBIGUOUS = [
    ["Content-Length: 5", "Transfer-Encoding: chunked"],
    ["Content-Length: -5"],
    ["Content-Length: 5", "Content-Length: 6"],
    ["Content-Length: 99999999999999999999"],
    ["Transfer-Encoding: chunked, identity"],
    [" folded: 1"],
]


@pytest.mark.parametrize("headers", AMBIGUOUS)
def test_framing_that_is_ambiguous_is_refused(headers):
    head = "\r\n".join([PREDICT, "Host: a", *headers]).encode()
    answered = statuses(answers(head + b"\r\n\r\n12345"))
    assert answered in ([], [400], [413])


@pytest.mark.parametrize(
    ("headers", "status", "told"),
    [
        (["Content-Length: 20 "], 200, b"predictions"),
        (["Content-Length:  20"], 200, b"predictions"),
        (["Transfer-Encoding: identity, chunked"], 400, b"Transfer-Encoding must be chunked"),
        (["Transfer-Encoding: gzip, chunked"], 400, b"Received: gzip, chunked"),
        (["Transfer-Encoding: gzip", "Transfer-Encoding: chunked"], 400, b"gzip, chunked"),
        (["Transfer-Encoding: Chunked"], 200, b"predictions"),
    ],
)
def test_the_length_of_a_body_is_clear(headers, status, told):
    body = b"14\r\n" + ROW + b"\r\n0\r\n\r\n" if "Transfer" in headers[0] else ROW
    head = "\r\n".join([PREDICT, "Host: a", *headers]).encode()
    answered = answers(head + b"\r\n\r\n" + body)
    assert statuses(answered)[0] == status
    assert told in answered


# A request that is refused before its body arrives.
EARLY = post(line="POST /nowhere HTTP/1.1", body=bytes(100))[:-100]
UNFINISHED = {
    "nothing": [],
    "a head that does not end": [post()[:20]],
    "a second head": [post(), post()[:20]],
    "an empty line": [post(), b"\r\n"],
    "one byte of a refused body": [EARLY, b"x"],
    "a refused body, and a head": [EARLY, bytes(100), post()[:20]],
}


@pytest.mark.parametrize("case", UNFINISHED)
@in_virtual_time
async def test_a_connection_closes_if_its_next_head_is_late(case):
    async with connected(head_seconds="10") as connection:
        await connection.send(*UNFINISHED[case])
        await connection.check_closes(10)


@pytest.mark.parametrize("answered", [0, 1])
@in_virtual_time
async def test_bytes_of_a_head_gain_no_time(answered):
    async with connected(head_seconds="10") as connection:
        await connection.send(post() * answered + b"GET /livez HTTP/1.1\r\nHost: ")
        for _ in range(9):
            await asyncio.sleep(1)
            await connection.send(b"x")
        await connection.check_closes(1)


@in_virtual_time
async def test_a_connection_without_requests_closes_later():
    async with connected(head_seconds="10") as connection:
        await connection.send(post())
        await asyncio.sleep(59)
        assert not connection.client.closed
        await connection.send(post())
        await connection.check_closes(60)


CHUNKED = f"{PREDICT}\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
ENDLESS = {
    "value": (b"GET / HTTP/1.1\r\nHost: a\r\nX: ", [431]),
    "name": (b"GET / HTTP/1.1\r\nHost: a\r\n", [431]),
    "path": (b"GET /", [431]),
    "trailer": (CHUNKED + b"0\r\nX: ", []),
}


@pytest.mark.parametrize("case", ENDLESS)
@in_virtual_time
async def test_a_head_without_end_is_cut_off(case):
    begun, expected = ENDLESS[case]
    async with connected(max_header_bytes="1000") as connection:
        await connection.send(begun, b"x" * 900)
        assert not connection.client.closed
        await connection.send(b"x" * 300)
        assert connection.statuses() == expected
        assert connection.client.closed


def test_the_log_warns_before_connections_are_refused(monkeypatch, caplog):
    accepted = mock.Mock(fileno=lambda: 95)  # a socket
    monkeypatch.setattr(protocols.resource, "getrlimit", lambda _: (100, 100))
    monkeypatch.setattr(RecordingTransport, "get_extra_info", {"socket": accepted}.get)
    caplog.set_level(logging.WARNING, "server")
    answers(post())
    assert "may have 100 open files, and 95 are open" in caplog.text


@pytest.mark.parametrize(
    ("peer", "client"),
    [("::ffff:10.0.0.5", "10.0.0.5"), ("::ffff:a", "::ffff:a"), ("2001:db8::1", "2001:db8::1")],
)
@in_virtual_time
async def test_an_ipv4_client_of_an_ipv6_socket_has_its_ipv4_address(peer, client):
    connection = Connection(make_app(), peer)
    assert connection.protocol.client == (client, 2)
    connection.protocol.connection_lost(None)


@pytest.mark.parametrize(
    ("host", "local", "answers"),
    [
        ("127.0.0.1", ("127.0.0.1", "admin"), "admin"),
        ("127.0.0.1", ("127.0.0.1", 1), "public"),
        ("127.0.0.1", ("10.0.0.1", "admin"), "public"),
        ("0.0.0.0", ("10.0.0.1", "admin"), "admin"),
        ("127.0.0.1", ("/run/gateway", None), "public"),
        ("127.0.0.1", None, "public"),
    ],
)
def test_only_connections_to_the_admin_port_reach_the_admin_application(host, local, answers):
    reached = []

    def application(name):
        async def answer(*_):
            reached.append(name)

        return answer

    with socket.create_server((host, 0)) as listener:
        port = listener.getsockname()[1]
        app = with_admin(application("public"), application("admin"), listener)
        server = local and (local[0], port if local[1] == "admin" else local[1])
        asyncio.run(app({"type": "http", "server": server}, None, None))
    assert reached == [answers]
