"""Compares the CPU time and the latency of the gateways of several checkouts.

Each request has another X-Request-Id, as behind a proxy. The gateways take turns, so a busy machine
disturbs all of them. Each gateway serves the same model of TensorFlow.

Run: python bench/gateway_load.py BEFORE AFTER --rounds 14 --seconds 2
"""

from __future__ import annotations

import argparse
import concurrent.futures
import contextlib
import itertools
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path

import numpy as np

RAW = "application/octet-stream"
IDS = np.arange(1000, dtype="<i8")
INFER = json.dumps({
    "inputs": [{"name": "ids", "datatype": "INT64", "shape": [1000],
                "parameters": {"binary_data_size": IDS.nbytes}}],
    "parameters": {"signature_name": "de_lookup/wide", "binary_data_output": True},
}).encode()  # fmt: skip
ROWS = np.random.default_rng(0).random((8, 10)).round(6).tolist()
PREDICT = "predict, 8 rows"
#: By name: the path, the body, and further headers.
REQUESTS = {
    PREDICT: ("/v1/models/m:predict", json.dumps({"instances": ROWS}).encode(), {}),
    "lookup, 100 ids, JSON": (
        "/v1/models/m:lookup",
        json.dumps({"table": "user", "ids": list(range(100))}).encode(),
        {},
    ),
    "lookup, 1,000 ids, raw": (
        "/v1/models/m:lookup?table=wide",
        IDS.tobytes(),
        {"Content-Type": RAW, "Accept": RAW},
    ),
    "V2, 1,000 ids, binary": (
        "/v2/models/m/infer",
        INFER + IDS.tobytes(),
        {"Inference-Header-Content-Length": str(len(INFER))},
    ),
}
NUMBERS = itertools.count()


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
    """A gateway of one checkout, in its own process."""

    def __init__(self, checkout: Path, model: Path) -> None:
        flags = ("--port", "0", "--rate-per-second", "0", "--drain-seconds", "0")
        environment = {**os.environ, "PYTHONPATH": str(checkout), "CUDA_VISIBLE_DEVICES": "-1"}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "server", "--model-dir", str(model), *flags],
            cwd=checkout, env=environment,
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        )  # fmt: skip
        self.port = int(self.process.stdout.readline().rsplit(":", 1)[1])
        while True:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/readyz"):
                    return
            except urllib.error.HTTPError:  # it still loads the model
                time.sleep(0.1)

    def cpu_seconds(self) -> float:
        """Returns the CPU time of the process and its children so far."""
        pid = self.process.pid
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        ticks = 0
        for each in (pid, *children):
            fields = Path(f"/proc/{each}/stat").read_text().rpartition(")")[2].split()
            ticks += int(fields[11]) + int(fields[12])
        return ticks / os.sysconf("SC_CLK_TCK")

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()


def ask(port: int, head: bytes, body: bytes, end: float, latencies: list[float]) -> None:
    """Sends requests over one connection, each after the answer to the one before."""
    with socket.create_connection(("127.0.0.1", port)) as connection:
        replies = connection.makefile("rb")
        while (begun := time.perf_counter()) < end:
            number = b"X-Request-Id: %d\r\n\r\n" % next(NUMBERS)
            connection.sendall(head + number + body)
            status = replies.readline()
            assert status.startswith(b"HTTP/1.1 200 "), status
            while (line := replies.readline()) != b"\r\n":
                if line.lower().startswith(b"content-length:"):
                    size = int(line.partition(b":")[2])
            replies.read(size)
            latencies.append(time.perf_counter() - begun)


def load(server: Server, request: tuple, clients: int, seconds: float) -> tuple[float, float]:
    """Returns the server's CPU microseconds per request, and the 99th percentile in seconds."""
    path, body, headers = request
    lines = [f"POST {path} HTTP/1.1", "Host: bench", f"Content-Length: {len(body)}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    head = "".join(f"{line}\r\n" for line in lines).encode()
    latencies: list[float] = []
    cpu, end = server.cpu_seconds(), time.perf_counter() + seconds
    with concurrent.futures.ThreadPoolExecutor(clients) as pool:
        asking = [pool.submit(ask, server.port, head, body, end, latencies) for _ in range(clients)]
    for each in asking:
        each.result()  # raises its error
    cpu = server.cpu_seconds() - cpu
    latencies.sort()
    return cpu / len(latencies) * 1e6, latencies[int(len(latencies) * 0.99)]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("checkouts", nargs="+", type=Path)
    parser.add_argument("--rounds", type=int, default=14, help="default 14")
    parser.add_argument("--seconds", type=float, default=2.0, help="of one turn, default 2")
    parser.add_argument("--clients", type=int, default=4, help="default 4")
    given = parser.parse_args()
    checkouts = [each.resolve() for each in given.checkouts]
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        write_model(Path(folder) / "m")
        servers = []
        for checkout in checkouts:
            servers.append(Server(checkout, Path(folder) / "m"))
            stack.callback(servers[-1].stop)
        cpu = {name: [[] for _ in servers] for name in REQUESTS}
        tails = [[] for _ in servers]
        for number in range(-1, given.rounds):  # the first round only warms up
            turns = list(enumerate(servers))[:: 1 if number % 2 else -1]
            for (name, request), (index, server) in itertools.product(REQUESTS.items(), turns):
                spent, _ = load(server, request, given.clients, given.seconds)
                if number >= 0:
                    cpu[name][index].append(spent)
            for index, server in turns:
                # In one second the first requests of 64 connections would be the slowest percent.
                tails[index].append(load(server, REQUESTS[PREDICT], 64, 4.0)[1])
    print("CPU µs per request, medians | " + " | ".join(each.name for each in checkouts))
    for name, columns in cpu.items():
        print(f"{name} | " + " | ".join(f"{statistics.median(each):.0f}" for each in columns))
    told = [f"{statistics.median(each) * 1e3:.1f}" for each in tails]
    print("p99 ms of predict, 64 clients | " + " | ".join(told))


if __name__ == "__main__":
    main()
