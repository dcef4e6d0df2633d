"""Resident memory of the gateway over DE_BENCH_REQUESTS requests (default 10^6). Takes minutes."""

from __future__ import annotations

import itertools
import json
import os
import statistics
import threading
from pathlib import Path

import numpy as np
import pytest

from bench.gateway_load import TOOLS, wrk
from bench.rounds import Bar
from tests.server.support.gateway_process import GatewayProcess

pytestmark = [
    pytest.mark.benchmark,
    pytest.mark.skipif(not TOOLS, reason="needs wrk and h2load"),
]
REQUESTS = int(os.environ.get("DE_BENCH_REQUESTS", "1000000"))
PARTS = 10


def memory_of(pid: int) -> int:
    """Returns a process's resident memory in kilobytes."""
    text = Path(f"/proc/{pid}/status").read_text()
    return int(text.split("VmRSS:")[1].split()[0])


class Sampled:
    """A context manager that samples a process's memory every half second."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._sample)
        self.kilobytes: list[int] = []

    def _sample(self) -> None:
        while not self._end.wait(0.5):
            self.kilobytes.append(memory_of(self._pid))

    def __enter__(self) -> Sampled:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()


def mixed(folder: Path) -> Path:
    """Writes a script that sends the requests in turn. A seventh of them is refused."""
    ids = np.random.default_rng(0).integers(0, 200_000, 16).tolist()
    inputs = {"user": [7] * 8, "item": ids[:8]}
    lookup = {"table": "user", "ids": ids}
    bags = {"table": "item", "ids": [ids[:3], [], ids[3:]], "combiner": "mean"}
    asked = [
        ("/v1/models/m:predict", {"inputs": inputs}),
        ("/v1/models/m:predict", {"instances": [{"user": 1, "item": 2}] * 4}),
        ("/v1/models/m:predict", {"inputs": {"user": [1.5], "item": ["x"]}}),
        ("/v1/models/m/versions/1:lookup", lookup),
        ("/v1/models/m:lookup", {**lookup, "missing": "null"}),
        ("/v1/models/m:lookup", {**bags, "format": "b64"}),
        ("/v2/models/m/infer", {"inputs": [
            {"name": name, "datatype": "INT64", "shape": [8], "data": data}
            for name, data in inputs.items()
        ]}),
    ]  # fmt: skip
    requests = ", ".join(
        f'wrk.format("POST", "{path}", nil, [=[{json.dumps(body)}]=])' for path, body in asked
    )
    file = folder / "mixed.lua"
    file.write_text(
        f"local all, turn = {{}}, 0\n"
        f"function init(args) all = {{{requests}}} end\n"
        f"function request() turn = turn % {len(asked)} + 1; return all[turn] end\n"
    )
    return file


def test_resident_memory_stays_flat(report, recommender, tmp_path):
    lua = mixed(tmp_path)
    flags = ("--rate-per-second", "0", "--model-rate-per-second", "0", "--drain-seconds", "0")
    with GatewayProcess(recommender, tmp_path / "log", *flags) as gateway:
        gateway.wait_ready()
        pid, path = gateway.process.pid, "/v1/models/m:predict"
        rate = wrk(gateway.port, pid, path, lua, 32, 5, refused=1 / 7).rate
        seconds = max(5, REQUESTS / rate / PARTS)
        answered, parts = 0.0, []
        while answered < REQUESTS:
            with Sampled(pid) as sampled:
                run = wrk(gateway.port, pid, path, lua, 32, seconds, refused=1 / 7)
            answered += run.rate * round(seconds)
            parts.append(statistics.median(sampled.kilobytes))
            report.row("Gateway: resident memory, embedded engine", {
                "requests": int(answered), "MB": parts[-1] / 1024,
            })  # fmt: skip
    steps = [after - before for before, after in itertools.pairwise(parts)]
    report.row("Gateway: growth of memory", {"largest step, MB": max(steps) / 1024})
    report.bars.append(
        Bar("1.02 x memory after a tenth / at the end", 1.02 * parts[0] / parts[-1], 1.0, 1.02)
    )
