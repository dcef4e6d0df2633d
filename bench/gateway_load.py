"""Loads gateways with requests, and measures their CPU time and latency.

As a script it compares the gateways of checkouts:

    python -m bench.gateway_load CHECKOUT … [--rounds 14] [--seconds 2]

The head of each request differs, as behind a proxy that adds a request id. The checkouts take
turns, so a busy machine disturbs all of them. Each gateway serves a model of TensorFlow from its
own process. The last column is an ASGI application that answers the same number of bytes.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import re
import selectors
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

TOOLS = all(shutil.which(tool) for tool in ("wrk", "h2load"))
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass
class Measured:
    """One run: requests per second, CPU microseconds per request, 99th percentile in seconds."""

    rate: float
    cpu: float
    p99: float


def pids_of(pid: int) -> list[int]:
    """Returns a process and its children."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [pid, *(int(child) for child in children)]


def cpu_seconds(pid: int) -> float:
    """Returns the CPU time of a process and its children so far."""
    total = 0
    for each in pids_of(pid):
        fields = Path(f"/proc/{each}/stat").read_text().rpartition(")")[2].split()
        total += int(fields[11]) + int(fields[12])
    return total / _TICKS


def script(folder: Path, name: str, body: bytes, headers: dict[str, str] | None = None) -> Path:
    """Writes a body, and a wrk script that posts it."""
    (folder / f"{name}.body").write_bytes(body)
    lines = [
        'wrk.method = "POST"',
        f'local file = io.open("{folder / f"{name}.body"}", "rb")',
        'wrk.body = file:read("*a")',
        *(f'wrk.headers["{key}"] = "{value}"' for key, value in (headers or {}).items()),
    ]
    file = folder / f"{name}.lua"
    file.write_text("\n".join(lines))
    return file


def with_ids(lua: Path) -> Path:
    """Writes a script that gives each request of another script its own X-Request-Id."""
    file = lua.with_stem(f"{lua.stem}_ids")
    lines = [
        lua.read_text(),
        "local number = 0",
        "request = function()",
        "  number = number + 1",
        '  wrk.headers["X-Request-Id"] = number',
        "  return wrk.format()",
        "end",
    ]
    file.write_text("\n".join(lines))
    return file


def wrk(
    port: int,
    pid: int,
    path: str,
    lua: Path,
    connections: int,
    seconds: float,
    refused: float = 0.0,
) -> Measured:
    """Sends requests as fast as possible. The fraction `refused` of the answers must be errors."""
    before = cpu_seconds(pid)
    done = subprocess.run(
        ["wrk", "--latency", "-t1", f"-c{connections}", f"-d{round(seconds)}s", "-s", str(lua),
         f"http://127.0.0.1:{port}{path}"],
        capture_output=True, text=True, check=True, timeout=seconds + 60,
    ).stdout  # fmt: skip
    cpu = cpu_seconds(pid) - before
    requests = int(re.search(r"(\d+) requests in", done)[1])
    others = re.search(r"Non-2xx or 3xx responses: (\d+)", done)
    assert abs(int(others[1] if others else 0) - refused * requests) <= connections, done
    rate = float(re.search(r"Requests/sec:\s+([\d.]+)", done)[1])
    number, unit = re.search(r"99%\s+([\d.]+)(us|ms|s)", done).groups()
    p99 = float(number) * {"us": 1e-6, "ms": 1e-3, "s": 1.0}[unit]
    return Measured(rate, cpu / requests * 1e6, p99)


def latencies(
    folder: Path, port: int, path: str, body: Path, rate: float, clients: int, seconds: int
) -> tuple[float, float]:
    """Sends requests at a fixed rate; returns the median and the 99th percentile in seconds."""
    log = folder / "h2load.log"
    log.unlink(missing_ok=True)
    subprocess.run(
        ["h2load", "--h1", f"-c{clients}", f"--rps={rate / clients:.2f}", f"-D{seconds}",
         "--warm-up-time=1", f"-d{body}", f"--log-file={log}", f"http://127.0.0.1:{port}{path}"],
        capture_output=True, check=True, timeout=seconds + 60,
    )  # fmt: skip
    rows = [line.split("\t") for line in log.read_text().splitlines()]
    times = sorted(int(row[2]) / 1e6 for row in rows if row[1] == "200")
    # h2load writes status 0 for requests that it abandons when the warm-up or the measurement ends.
    assert {row[1] for row in rows} <= {"200", "0"}
    assert len(rows) - len(times) <= clients
    return statistics.median(times), times[int(len(times) * 0.99)]


RAW = "application/octet-stream"
IDS = np.arange(1000, dtype="<i8")
INFER = json.dumps({
    "inputs": [{"name": "ids", "datatype": "INT64", "shape": [1000],
                "parameters": {"binary_data_size": IDS.nbytes}}],
    "parameters": {"signature_name": "de_lookup/wide", "binary_data_output": True},
}).encode()  # fmt: skip
ROWS = np.random.default_rng(0).random((8, 10)).round(6).tolist()
#: By name: the path, the body, further headers, and the size of the answer.
REQUESTS = {
    "predict, 8 rows": ("/v1/models/m:predict", json.dumps({"instances": ROWS}).encode(), {}, 64),
    "lookup, 100 ids, JSON": (
        "/v1/models/m:lookup",
        json.dumps({"table": "user", "ids": list(range(100))}).encode(),
        {},
        4_000,
    ),
    "lookup, 1,000 ids, raw": (
        "/v1/models/m:lookup?table=wide",
        IDS.tobytes(),
        {"Content-Type": RAW, "Accept": RAW},
        257_000,
    ),
    "V2, 1,000 ids, binary": (
        "/v2/models/m/infer",
        INFER + IDS.tobytes(),
        {"Inference-Header-Content-Length": str(len(INFER))},
        257_000,
    ),
}
ECHO = "tests.server.support.echo_asgi"


def write_model(folder: Path) -> None:
    """Writes a model whose tables are constants, so that no op library is needed."""
    import tensorflow as tf

    random = np.random.default_rng(0)
    model = tf.Module()
    weights = random.random((10, 1), np.float32)

    @tf.function(input_signature=[tf.TensorSpec([None, 10], tf.float32, "x")])
    def predict(x):
        return {"y": tf.squeeze(x @ weights, 1)}

    def lookup_of(rows):
        @tf.function(input_signature=[tf.TensorSpec([None], tf.int64, "ids")])
        def lookup(ids):
            return {"embeddings": tf.gather(tf.constant(rows), ids), "found": ids < len(rows)}

        return lookup

    model.predict, signatures = predict, {"serving_default": predict}
    for name, dim in (("user", 4), ("wide", 64)):
        lookup = lookup_of(random.random((1000, dim), np.float32))
        setattr(model, name, lookup)
        signatures[f"de_lookup/{name}"] = lookup
    tf.saved_model.save(model, str(folder / "1"), signatures)


class Server:
    """A server of one checkout, in its own process."""

    def __init__(self, checkout: Path, *command: str) -> None:
        environment = {**os.environ, "PYTHONPATH": str(checkout), "CUDA_VISIBLE_DEVICES": "-1"}
        self.process = subprocess.Popen(
            [sys.executable, "-m", *command], cwd=checkout, env=environment,
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        )  # fmt: skip
        assert self.process.stdout is not None
        self.port = int(self.process.stdout.readline().rsplit(":", 1)[1])

    def wait_ready(self) -> None:
        while b" 200 " not in exchange(self.port, b"GET /readyz HTTP/1.0\r\n\r\n"):
            time.sleep(0.1)

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()


def exchange(port: int, request: bytes) -> bytes:
    """Sends one request; returns the answer."""
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(request)
        return b"".join(iter(lambda: connection.recv(65536), b""))


class Client:
    """One connection, which sends its next request when the answer is complete."""

    numbers = itertools.count()

    def __init__(self, port: int, path: str, body: bytes, headers: dict[str, str]) -> None:
        lines = [f"POST {path} HTTP/1.1", "Host: bench", f"Content-Length: {len(body)}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        self.head, self.body = "\r\n".join(lines).encode(), body
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.latencies: list[float] = []
        self.send()

    def send(self) -> None:
        number = b"\r\nX-Request-Id: %d\r\n\r\n" % next(self.numbers)
        self.received, self.size = b"", 0
        self.begun = time.perf_counter()
        self.socket.sendall(self.head + number + self.body)

    def read(self) -> None:
        data = self.socket.recv(1 << 20)
        assert data, "the server closed the connection"
        if not self.size:
            self.received += data
            head, end, rest = self.received.partition(b"\r\n\r\n")
            if not end:
                return
            assert head.startswith(b"HTTP/1.1 200 "), head[:200]
            length = int(head.lower().split(b"\r\ncontent-length:")[1].split(b"\r\n")[0])
            self.size, data = length, rest
        self.size -= len(data)
        if self.size <= 0:
            self.latencies.append(time.perf_counter() - self.begun)
            self.send()


def load(server: Server, request: tuple, clients: int, seconds: float) -> tuple[float, float]:
    """Returns the server's CPU microseconds per request, and the 99th percentile in seconds."""
    path, body, headers, _ = request
    selector = selectors.DefaultSelector()
    asking = [Client(server.port, path, body, headers) for _ in range(clients)]
    for client in asking:
        selector.register(client.socket, selectors.EVENT_READ, client)
    cpu, end = cpu_seconds(server.process.pid), time.perf_counter() + seconds
    while time.perf_counter() < end:
        for key, _ in selector.select():
            key.data.read()
    cpu = cpu_seconds(server.process.pid) - cpu
    latencies = sorted(each for client in asking for each in client.latencies)
    for client in asking:
        client.socket.close()
    return cpu / len(latencies) * 1e6, latencies[int(len(latencies) * 0.99)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("checkouts", nargs="+", type=Path)
    parser.add_argument("--rounds", type=int, default=14)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--clients", type=int, default=4)
    given = parser.parse_args()
    names = [each.resolve().name for each in given.checkouts] + ["bare ASGI"]
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        write_model(Path(folder) / "m")
        flags = f"--model-dir {folder}/m --port 0 --rate-per-second 0 --drain-seconds 0".split()
        servers = [Server(each.resolve(), "server", *flags) for each in given.checkouts]
        for server in servers:
            stack.callback(server.stop)
            server.wait_ready()
        servers.append(Server(Path.cwd(), ECHO))
        stack.callback(servers[-1].stop)
        measured = {name: [[] for _ in servers] for name in REQUESTS}
        tails = [[] for _ in servers]
        for number in range(given.rounds + 1):
            for name, request in REQUESTS.items():
                turns = list(enumerate(servers))
                for index, server in turns if number % 2 else turns[::-1]:
                    asked = request if index < len(given.checkouts) else (
                        f"/send/{request[3]}", *request[1:])  # fmt: skip
                    cpu, _ = load(server, asked, given.clients, given.seconds)
                    if number:
                        measured[name][index].append(cpu)
            for index, server in enumerate(servers[:-1]):
                tails[index].append(load(server, REQUESTS["predict, 8 rows"], 64, 1.0)[1])
    print("CPU µs per request, medians | " + " | ".join(names))
    for name, columns in measured.items():
        print(f"{name} | " + " | ".join(f"{statistics.median(each):.0f}" for each in columns))
    told = [f"{statistics.median(each) * 1e3:.1f}" for each in tails[:-1]]
    print("p99 ms of predict, 64 clients | " + " | ".join(told))


if __name__ == "__main__":
    main()
