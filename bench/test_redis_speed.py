"""Compares rows in Redis with redis-benchmark, which pipelines rows of the same size.

The two are measured in turn, so that a disturbance of the machine affects both.

Run: pytest bench/test_redis_speed.py -m benchmark -s
"""

import re
import statistics
import subprocess
import time

import pytest
import tensorflow as tf

import de_core as de
from tests.storage import servers
from tests.storage.servers import creator_for

ROWS, DIM, ROUNDS = 10_000, 64, 15

pytestmark = pytest.mark.benchmark


def benchmarked(port, command):
    """Returns redis-benchmark's requests per second, with pipelines of 100."""
    words = ["-p", str(port), "-n", "100000", "-P", "100", "-d", str(4 * DIM), "-r", str(ROWS)]
    done = subprocess.run(
        ["redis-benchmark", *words, "-t", command, "-q"],
        capture_output=True,
        text=True,
        check=True,
    )
    return float(re.findall(r"([\d.]+) requests per second", done.stdout)[-1])


def test_batches_reach_half_of_a_pipelined_benchmark(tmp_path):
    server = servers.Server(tmp_path)
    try:
        table = de.Variable(dim=DIM, name="speed", kv_creator=creator_for([server]))
        keys, rows = tf.range(ROWS, dtype=tf.int64), tf.random.normal([ROWS, DIM])

        def measured(call):
            begin = time.perf_counter()
            call()
            return ROWS / (time.perf_counter() - begin)

        ratios = {"get": [], "set": []}
        calls = {"set": lambda: table.upsert(keys, rows), "get": lambda: table.lookup(keys)}
        for call in calls.values():
            call()
        for _ in range(ROUNDS):
            for command, call in calls.items():
                ours = statistics.median(measured(call) for _ in range(5))
                ratios[command].append((ours / benchmarked(server.port, command), ours))
        for command, found in ratios.items():
            ratio, ours = (statistics.median(each) for each in zip(*found, strict=True))
            print(f"{command}: {ours:,.0f} rows/s, {ratio:.2f} of redis-benchmark")
            assert ratio > 0.5
    finally:
        server.stop()
