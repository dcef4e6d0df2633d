"""Disconnected, greedy or malicious clients on real sockets do not affect other clients.

`process/test_protocol.py` has slow clients and unclear requests.
"""

import concurrent.futures
import contextlib
import json
import random
import socket
import struct
import time
from pathlib import Path

import pytest

from tests.server.support.eventually import PATIENCE_S, wait_until

PREDICT = "/v1/models/m:predict"
BODY = b'{"instances": [1.0]}'
# A leak of one object per tenth disconnect leaves so many blocks after a hundred thousand.
LEAKED_BLOCKS = 10_000
RESTING = b'{"signature_name": "rest", "instances": [0.005]}'
# A client on a busy machine may need a second between its connection and its request.
FLAGS = ("--head-seconds", "2", "--body-seconds", "2", "--max-body-bytes", "100000",
         "--max-decompressed-bytes", "200000", "--drain-seconds", "0")  # fmt: skip


@pytest.fixture(autouse=True)
def _others_are_served(stub):
    yield
    reply = stub.ask("POST", PREDICT, BODY)
    assert (reply.status, reply.body) == (200, b'{"predictions":[2.5]}')
    assert "Traceback" not in stub.log()


def connect(stub) -> socket.socket:
    return socket.create_connection(("127.0.0.1", stub.port), timeout=PATIENCE_S)


def head(path: str = PREDICT, *headers: str) -> bytes:
    return "\r\n".join([f"POST {path} HTTP/1.1", "Host: x", *headers, "", ""]).encode()


def test_a_connection_half_closed_does_no_harm(stub):
    with connect(stub) as connection:
        connection.sendall(head(PREDICT, "Content-Length: 100") + b"{")
        connection.shutdown(socket.SHUT_WR)
        with contextlib.suppress(ConnectionResetError):
            while connection.recv(65536):
                pass


def test_five_hundred_idle_connections_keep_nobody_out(stub):
    idle = [connect(stub) for _ in range(500)]
    try:
        assert stub.ask("POST", PREDICT, BODY).status == 200
    finally:
        for connection in idle:
            connection.close()


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
        body = text.replace("DEEP", "[" * depth + "]" * depth).encode()
        reply = stub.ask("POST", f"/v1/models/m:{verb}", body)
        assert reply.status == 400 or (depth == 10 and reply.status == 200), reply


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


@pytest.mark.parametrize("count", [0, pytest.param(100_000, marks=pytest.mark.slow)])
def test_disconnects_at_random_leave_nothing(stub, count):
    files, tasks = open_files(stub.process.pid), count_of(stub, "tasks")
    disconnects(stub, 1500)
    before = count_of(stub, "blocks")
    disconnects(stub, count)
    wait_until(lambda: open_files(stub.process.pid) <= files)
    stub.wait_in_flight(0)
    wait_until(lambda: count_of(stub, "tasks") == tasks)
    assert count_of(stub, "blocks") < before + LEAKED_BLOCKS


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
