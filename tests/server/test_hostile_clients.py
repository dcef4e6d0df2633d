"""Slow, disconnected, greedy or malicious clients on real sockets do not affect other clients."""

from __future__ import annotations

import concurrent.futures
import gzip
import json
import random
import socket
import struct
import time
import zlib
from pathlib import Path

import pytest

from tests.server.support.eventually import PATIENCE_S, wait_until
from tests.server.support.gateway_process import STUB, GatewayProcess

PREDICT = "/v1/models/m:predict"
BODY = b'{"instances": [1.0]}'
# A leak of one object per tenth disconnect leaves so many blocks after a hundred thousand.
LEAKED_BLOCKS = 10_000
RESTING = b'{"signature_name": "rest", "instances": [0.005]}'


@pytest.fixture(scope="module")
def stub(tmp_path_factory):
    log = tmp_path_factory.mktemp("stub") / "log"
    with GatewayProcess(
        None, log, "--head-seconds", "0.5", "--body-seconds", "0.5", "--max-body-bytes", "100000",
        "--max-decompressed-bytes", "200000", "--drain-seconds", "0", module=STUB,
    ) as gateway:  # fmt: skip
        gateway.wait_ready()
        yield gateway


@pytest.fixture(autouse=True)
def _others_are_served(stub):
    yield
    reply = stub.ask("POST", PREDICT, BODY)
    assert (reply.status, reply.body) == (200, b'{"predictions":[2.5]}')
    assert "Traceback" not in stub.log()


def connect(stub) -> socket.socket:
    return socket.create_connection(("127.0.0.1", stub.port), timeout=PATIENCE_S)


def exchange(stub, *pieces: bytes, pause: float = 0.0) -> bytes:
    """Sends pieces and returns the received bytes until the other side closes."""
    with connect(stub) as connection:
        for piece in pieces:
            connection.sendall(piece)
            time.sleep(pause)
        return read(connection)


def read(connection: socket.socket) -> bytes:
    received = b""
    try:
        while piece := connection.recv(65536):
            received += piece
    except ConnectionResetError:
        pass
    return received


def trickle(connection: socket.socket, count: int) -> None:
    for _ in range(count):
        connection.sendall(b"x")
        time.sleep(0.05)


def head(path: str = PREDICT, *headers: str) -> bytes:
    return "\r\n".join([f"POST {path} HTTP/1.1", "Host: x", *headers, "", ""]).encode()


def test_a_head_that_never_ends_is_cut_off(stub):
    assert exchange(stub, b"POST /v1/models/m:predict HTTP/1.1\r\nHost: x\r\n") == b""


def test_a_head_that_trickles_is_cut_off(stub):
    with connect(stub) as connection:
        connection.sendall(b"GET /livez HTTP/1.1\r\nHost: ")
        with pytest.raises((BrokenPipeError, ConnectionResetError)):
            trickle(connection, 400)


def test_a_second_request_that_trickles_is_cut_off_too(stub):
    with connect(stub) as connection:
        connection.sendall(b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n")
        answer = b""
        while not answer.endswith(b'{"status":"ok"}'):
            answer += connection.recv(65536)
        connection.sendall(b"GET /livez HTTP/1.1\r\n")
        assert read(connection) == b""


def test_a_body_that_never_ends_is_a_408(stub):
    answer = exchange(stub, head(PREDICT, "Content-Length: 100"), b'{"inst')
    assert answer.startswith(b"HTTP/1.1 408")
    assert b"within 0.5 seconds" in answer


def test_a_connection_half_closed_and_one_reset_do_no_harm(stub):
    with connect(stub) as connection:
        connection.sendall(head(PREDICT, "Content-Length: 100") + b"{")
        connection.shutdown(socket.SHUT_WR)
        read(connection)
    connection = connect(stub)
    connection.sendall(head(PREDICT, "Content-Length: 20") + BODY)
    reset(connection)
    connection.close()


def test_five_hundred_idle_connections_keep_nobody_out(stub):
    idle = [connect(stub) for _ in range(500)]
    try:
        assert stub.ask("POST", PREDICT, BODY).status == 200
    finally:
        for connection in idle:
            connection.close()


def test_chunks_beyond_the_limit_are_a_413(stub):
    chunk = b"8000\r\n" + b"1" * 0x8000 + b"\r\n"
    answer = exchange(stub, head(PREDICT, "Transfer-Encoding: chunked"), *[chunk] * 5, b"0\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 413")
    assert b"Request body exceeds 100000 bytes" in answer


@pytest.mark.parametrize(
    "headers",
    [
        ("Content-Length: 5", "Transfer-Encoding: chunked"),
        ("Content-Length: -5",),
        ("Content-Length: 5", "Content-Length: 6"),
        ("Content-Length: 99999999999999999999",),
        ("Transfer-Encoding: chunked, identity",),
        (" folded: 1",),
    ],
)
def test_framing_that_is_ambiguous_is_refused(stub, headers):
    answer = exchange(stub, head(PREDICT, *headers), b"12345")
    assert answer == b"" or answer.split()[1] in (b"400", b"413"), answer


@pytest.mark.parametrize("hosts", [b"", b"Host: x\r\nHost: y\r\n", b"Host: x\r\nHost: x\r\n"])
def test_a_request_has_one_host(stub, hosts):
    answer = exchange(stub, b"GET /livez HTTP/1.1\r\n" + hosts + b"\r\n")
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b"one Host header. Received: %d of them" % hosts.count(b"Host") in answer


def test_a_request_of_http_1_0_needs_no_host(stub):
    assert exchange(stub, b"GET /livez HTTP/1.0\r\n\r\n").startswith(b"HTTP/1.1 200 ")


def bomb(size: int) -> bytes:
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    return packer.compress(bytes(size)) + packer.flush()


@pytest.mark.parametrize(
    ("body", "status", "error"),
    [
        (bomb(90_000_000), 413, "exceeds 200000 bytes after decompression"),
        (gzip.compress(bomb(90_000_000)), 400, "JSON Parse error"),
        (gzip.compress(b"") * 100, 400, "at most 64 gzip members"),
        (gzip.compress(BODY)[:-4], 400, "ends before its gzip stream does"),
        (b"no gzip", 400, "must be gzip"),
        (b"[" * 500_000, 413, ""),
        (gzip.compress(b"[" * 150_000), 400, ""),
    ],
    # gzip's own bytes contain the time, so they cannot name a test.
    ids=["plain", "twice", "members", "cut", "no-gzip", "deep", "deep-gzip"],
)
def test_bodies_that_are_bombs(stub, body, status, error):
    encoding = {"content-encoding": "gzip"} if body[:1] != b"[" else {}
    reply = stub.ask("POST", PREDICT, body, encoding)
    assert reply.status == status, reply
    assert error in reply.error


def nested(depth: int, text: str) -> bytes:
    return text.replace("DEEP", "[" * depth + "]" * depth).encode()


@pytest.mark.parametrize(
    ("verb", "text"),
    [
        ("predict", '{"instances": DEEP}'),
        ("predict", '{"inputs": {"x": DEEP}}'),
        ("predict", '{"x": DEEP, "instances": [1.0], "y": NaN}'),
        ("classify", '{"signature_name": "old", "examples": [{"age": DEEP}]}'),
        ("regress", '{"context": DEEP, "examples": [{}]}'),
        ("lookup", '{"table": "user", "ids": DEEP}'),
        ("lookup", '{"ids": [1], "x": DEEP, "table": 3}'),
    ],
)
def test_nesting_of_any_depth_is_no_failure(stub, verb, text):
    for depth in (10, 1_500, 45_000):
        reply = stub.ask("POST", f"/v1/models/m:{verb}", nested(depth, text))
        assert reply.status == 400 or (depth == 10 and reply.status == 200), reply


@pytest.mark.parametrize(
    ("verb", "text", "error"),
    [
        ("lookup", '{"table": "user", "ids": [9223372036854775808]}', "must fit int64"),
        ("lookup", '{"table": "user", "ids": ["9223372036854775808"]}', "must fit int64"),
        ("lookup", '{"table": "user", "ids": [NaN]}', "JSON Parse error"),
        ("lookup", '{"table": "user", "ids": [1.0]}', "An id must be an integer"),
        ("predict", '{"signature_name": "echo64", "instances": [9223372036854775808]}', "int64"),
        ("predict", '{"signature_name": "echo64", "instances": [NaN]}', "int64"),
        ("predict", '{"instances": [1e400]}', "JSON Parse error"),
        ("predict", '{"instances": [' + "9" * 5000 + "]}", ""),
    ],
)
def test_numbers_at_the_edge(stub, verb, text, error):
    reply = stub.ask("POST", f"/v1/models/m:{verb}", text.encode())
    assert reply.status == 400
    assert error in reply.error


@pytest.mark.parametrize(
    "name", ["..", "..%2f..%2fetc%2fpasswd", "%2e%2e", "a%00b", "%ff", "%c0%ae"]
)
def test_no_name_is_a_path(stub, name):
    for method, path in (
        ("POST", f"/v1/models/{name}:predict"),
        ("GET", f"/v1/models/{name}"),
        ("GET", f"/v1/models/{name}/metadata"),
        ("GET", f"/v1/models/m/tables/{name}"),
        ("POST", f"/v1/models/m/labels/{name}:predict"),
        ("GET", f"/v2/models/{name}"),
        ("GET", f"/ui/{name}"),
    ):
        reply = stub.ask(method, path, BODY if method == "POST" else None)
        assert reply.status in (400, 404), (path, reply)
        assert "root:" not in reply.body.decode()
    table = json.dumps({"table": name, "ids": [1]}).encode()
    assert stub.ask("POST", "/v1/models/m:lookup", table).status == 404


def reset(connection: socket.socket) -> None:
    """Makes `close` reset the connection."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def leave_somewhere(stub, chance: random.Random) -> None:
    """Disconnects at a random point: half of the time in a request, else during the answer."""
    with connect(stub) as connection:
        if chance.random() < 0.5:
            connection.sendall(head(PREDICT, f"Content-Length: {len(RESTING)}") + RESTING)
            time.sleep(chance.random() * 0.01)
        else:
            request = head(PREDICT, f"Content-Length: {len(BODY)}") + BODY
            connection.sendall(request[: chance.randrange(1, len(request) + 1)])
        if chance.random() < 0.5:
            reset(connection)


def disconnects(stub, count: int) -> None:
    chance = random.Random(0)
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: leave_somewhere(stub, chance), range(count)))


def open_files(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


def count_of(stub, what: str) -> float:
    """Returns the number of tasks, connections or blocks of memory in the gateway."""
    body = {"signature_name": what, "instances": [0.0]}
    return stub.ask("POST", PREDICT, body).json()["predictions"][0]


def check_nothing_is_left(stub, files: int, tasks: float) -> None:
    wait_until(lambda: open_files(stub.process.pid) <= files)
    stub.wait_in_flight(0)
    wait_until(lambda: count_of(stub, "tasks") == tasks)


def test_disconnects_at_random_leave_nothing(stub):
    files, tasks = open_files(stub.process.pid), count_of(stub, "tasks")
    disconnects(stub, 1500)
    check_nothing_is_left(stub, files, tasks)


def test_a_connection_that_is_reset_after_its_answer_leaves_nothing(stub):
    count = count_of(stub, "connections")
    for _ in range(20):
        with connect(stub) as connection:
            connection.sendall(head(PREDICT, f"Content-Length: {len(BODY)}") + BODY)
            answer = b""
            while not answer.endswith(b"]}"):
                answer += connection.recv(65536)
            reset(connection)
    wait_until(lambda: count_of(stub, "connections") == count)


@pytest.mark.slow
def test_a_hundred_thousand_disconnects_leave_nothing(stub):
    files, tasks = open_files(stub.process.pid), count_of(stub, "tasks")
    disconnects(stub, 2_000)
    check_nothing_is_left(stub, files, tasks)
    before = count_of(stub, "blocks")
    disconnects(stub, 100_000)
    check_nothing_is_left(stub, files, tasks)
    assert count_of(stub, "blocks") < before + LEAKED_BLOCKS
