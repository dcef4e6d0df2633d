"""Measures the gateway under load from wrk and h2load on loopback, as ratios within one run."""

from __future__ import annotations

import json
import os
import statistics
from pathlib import Path

import numpy as np
import pytest

from bench.gateway_load import TOOLS, latencies, script, with_ids, wrk
from bench.rounds import Bar
from tests.server import test_attacks as attacks
from tests.server.support.attack import delays_beside
from tests.server.support.children import children_of
from tests.server.support.gateway_process import STUB, GatewayProcess
from tests.server.test_attacks import LOOKUPS

pytestmark = [
    pytest.mark.benchmark,
    pytest.mark.skipif(not TOOLS, reason="needs wrk and h2load"),
]
SECONDS = float(os.environ.get("DE_BENCH_SECONDS", "4"))
ROUNDS = int(os.environ.get("DE_BENCH_ROUNDS", "3"))
PREDICT = "/v1/models/m:predict"
# Requests per second.
RATES = (250, 1000)
ECHO = "tests.server.support.echo_asgi"
FREE = ("--rate-per-second", "0")


def embedded(folder: Path, log: Path, *flags: str) -> GatewayProcess:
    return GatewayProcess(folder, log, *FREE, "--drain-seconds", "0", *flags)


def candidates(count: int) -> bytes:
    ids = np.random.default_rng(0).integers(0, 100_000, count).tolist()
    return json.dumps({"inputs": {"user": [7] * count, "item": ids}}).encode()


def median(values) -> float:
    return statistics.median(values)


def test_cpu_of_a_predict_beside_a_bare_echo(report, tmp_path):
    rows = np.random.default_rng(0).random((8, 10)).round(6).tolist()
    body = json.dumps({"signature_name": "rows", "instances": rows}).encode()
    lua = script(tmp_path, "predict", body)
    stub = GatewayProcess(None, tmp_path / "stub", *FREE, module=STUB)
    echo = GatewayProcess(None, tmp_path / "echo", module=ECHO)
    with stub, echo:
        stub.wait_ready()
        measured = {"gateway": [], "echo": []}
        for _ in range(ROUNDS + 1):
            for name, server in (("gateway", stub), ("echo", echo)):
                pid = server.process.pid
                measured[name].append(wrk(server.port, pid, PREDICT, lua, 8, SECONDS))
    ratios = [
        gateway.cpu / bare.cpu
        for gateway, bare in zip(measured["gateway"][1:], measured["echo"][1:], strict=True)
    ]
    for name, runs in measured.items():
        report.row("Gateway: 8 x 10 predict, stub engine", {
            "server": name,
            "CPU µs a request": median(run.cpu for run in runs[1:]),
            "requests/s": median(run.rate for run in runs[1:]),
            "p99 ms": median(run.p99 for run in runs[1:]) * 1e3,
        })  # fmt: skip
    report.bars.append(Bar("6 x echo's CPU / gateway's CPU", 6 / median(ratios), 1.0, 2.0))


def test_latency_beside_a_bare_echo_at_equal_load(report, tmp_path):
    """Both servers get the same requests at a fixed rate, even if earlier ones are unanswered."""
    rows = np.random.default_rng(0).random((8, 10)).round(6).tolist()
    body = tmp_path / "predict.body"
    body.write_bytes(json.dumps({"signature_name": "rows", "instances": rows}).encode())
    stub = GatewayProcess(None, tmp_path / "stub", *FREE, module=STUB)
    echo = GatewayProcess(None, tmp_path / "echo", module=ECHO)
    runs = {(rate, name): [] for rate in RATES for name in ("gateway", "echo")}
    with stub, echo:
        stub.wait_ready()
        for _ in range(ROUNDS):
            for rate, name in runs:
                port = (stub if name == "gateway" else echo).port
                told = latencies(tmp_path, port, PREDICT, body, rate, 8, int(SECONDS))
                runs[rate, name].append(told)
    for (rate, name), told in runs.items():
        p50, p99 = (median(run[i] for run in told) * 1e3 for i in range(2))
        report.row("Gateway: 8 x 10 predict at a fixed rate, stub engine", {
            "requests/s": rate, "server": name, "p50 ms": p50, "p99 ms": p99,
        })  # fmt: skip


def test_binary_lookups_beside_json(report, recommender, tmp_path):
    ids = np.random.default_rng(0).integers(0, 100_000, 1000)
    as_json = script(tmp_path, "json", json.dumps({"table": "user", "ids": ids.tolist()}).encode())
    kind = "application/octet-stream"
    as_bytes = script(tmp_path, "raw", ids.astype("<i8").tobytes(),
                      {"Content-Type": kind, "Accept": kind})  # fmt: skip
    rates = {"JSON": [], "binary": []}
    with embedded(recommender, tmp_path / "log") as gateway:
        gateway.wait_ready()
        for _ in range(ROUNDS):
            for name, lua in (("JSON", as_json), ("binary", as_bytes)):
                path = "/v1/models/m:lookup?table=user"
                run = wrk(gateway.port, gateway.process.pid, path, lua, 4, SECONDS)
                rates[name].append(run.rate)
    for name, values in rates.items():
        report.row("Gateway: lookup of 1,000 ids, dim 64",
                   {"form": name, "lookups/s": median(values)})  # fmt: skip
    ratios = [b / a for a, b in zip(rates["JSON"], rates["binary"], strict=True)]
    report.bars.append(Bar("lookups, binary / JSON", median(ratios), 5, 10))


def test_cpu_of_a_binary_lookup_beside_a_bare_send(report, tmp_path):
    ids = np.arange(1000, dtype="<i8").tobytes()
    kind = {"Content-Type": "application/octet-stream", "Accept": "application/octet-stream"}
    header = json.dumps({
        "inputs": [{"name": "ids", "datatype": "INT64", "shape": [1000],
                    "parameters": {"binary_data_size": len(ids)}}],
        "parameters": {"signature_name": "de_lookup/wide", "binary_data_output": True},
    }).encode()  # fmt: skip
    length = {"Inference-Header-Content-Length": str(len(header))}
    raw = script(tmp_path, "raw", ids, kind)
    stub = GatewayProcess(None, tmp_path / "stub", *FREE, module=STUB)
    echo = GatewayProcess(None, tmp_path / "echo", module=ECHO)
    ours = GatewayProcess(None, tmp_path / "ours", "--gateway", module=ECHO)
    send, lookup = "/send/257000", "/v1/models/m:lookup?table=wide"
    asked = {
        "bare send": (echo, send, raw),
        "bare send, the gateway's protocol": (ours, send, raw),
        ":lookup": (stub, lookup, raw),
        ":lookup, a header changes": (stub, lookup, with_ids(raw)),
        "/v2 infer": (stub, "/v2/models/m/infer", script(tmp_path, "infer", header + ids, length)),
    }
    measured = {name: [] for name in asked}
    with stub, echo, ours:
        stub.wait_ready()
        for _ in range(ROUNDS + 1):
            for name, (server, path, lua) in asked.items():
                run = wrk(server.port, server.process.pid, path, lua, 4, SECONDS)
                measured[name].append(run)
    for name, runs in measured.items():
        report.row("Gateway: 1,000 ids x 64 in bytes, stub engine", {
            "request": name,
            "CPU µs a request": median(run.cpu for run in runs[1:]),
            "requests/s": median(run.rate for run in runs[1:]),
        })  # fmt: skip
    for name in (":lookup", "/v2 infer"):
        ratios = [
            run.cpu / bare.cpu
            for run, bare in zip(measured[name][1:], measured["bare send"][1:], strict=True)
        ]
        report.bars.append(Bar(f"1.5 x bare send's CPU / {name}'s", 1.5 / median(ratios), 1.0, 1.2))


def test_latency_at_half_of_the_maximum_load(report, recommender, tmp_path):
    lua = script(tmp_path, "ask", candidates(8))
    with embedded(recommender, tmp_path / "log") as gateway:
        gateway.wait_ready()
        most = max(
            wrk(gateway.port, gateway.process.pid, PREDICT, lua, 8, SECONDS).rate for _ in range(2)
        )
        body = tmp_path / "ask.body"
        runs = [
            latencies(tmp_path, gateway.port, PREDICT, body, most / 2, 8, int(SECONDS) * 2)
            for _ in range(ROUNDS)
        ]
    p50, p99 = (median(run[i] for run in runs) for i in range(2))
    report.row("Gateway: recommender, embedded, half of the maximum load", {
        "maximum/s": most, "p50 ms": p50 * 1e3, "p99 ms": p99 * 1e3,
    })  # fmt: skip
    report.bars.append(Bar("5 x p50 / p99", 5 * p50 / p99, 1.0, 2.0))


def test_two_workers_beside_one(report, recommender, tmp_path):
    lua = script(tmp_path, "ask", candidates(8))
    rates = {1: [], 2: []}
    one = embedded(recommender, tmp_path / "one", "--threads", "1")
    two = embedded(recommender, tmp_path / "two", "--threads", "1", "--workers", "2")
    with one, two:
        one.wait_ready()
        two.wait_for("/metrics", lambda reply: reply.body.count(b"gateway_in_flight{") == 2)
        two.wait_ready()
        for _ in range(ROUNDS):
            for count, server in ((1, one), (2, two)):
                pid = server.process.pid
                rates[count].append(wrk(server.port, pid, PREDICT, lua, 32, SECONDS).rate)
    for count, values in rates.items():
        report.row("Gateway: worker processes", {"workers": count, "requests/s": median(values)})
    ratios = [b / a for a, b in zip(rates[1], rates[2], strict=True)]
    report.bars.append(Bar("two workers / one", median(ratios), 1.7, 1.9))


def test_micro_batches_beside_none(report, recommender, tmp_path):
    lua = script(tmp_path, "ask", candidates(2))
    rates = {"0": [], "64": []}
    servers = {
        rows: embedded(recommender, tmp_path / rows, "--batch-rows", rows, "--batch-delay-ms", "1")
        for rows in rates
    }
    with servers["0"], servers["64"]:
        for server in servers.values():
            server.wait_ready()
        for _ in range(ROUNDS):
            for rows, server in servers.items():
                run = wrk(server.port, server.process.pid, PREDICT, lua, 32, SECONDS)
                rates[rows].append(run.rate)
    for rows, values in rates.items():
        report.row("Gateway: micro-batches, 32 clients of 2 rows",
                   {"batch rows": rows, "requests/s": median(values)})  # fmt: skip
    ratios = [b / a for a, b in zip(rates["0"], rates["64"], strict=True)]
    report.bars.append(Bar("with micro-batches / without", median(ratios), 1.0, 1.5))


# Bodies and the verbs that they are sent to.
ATTACKS = {
    "3,000,000 examples": ("classify", attacks.examples(b"{}", 3_000_000)),
    "100,000 admitted examples": ("classify", attacks.examples(b'{"age":1}', 100_000)),
    "3,900,000 infinities": ("predict", attacks.values(b"-Inf", 3_900_000)),
    "3,900,000 numbers": ("predict", attacks.values(b"1.5", 3_900_000)),
    "an id of 30 MB": ("lookup", b'{"table":"user","ids":["' + b"7" * 30_000_000 + b'"]}'),
    **{f"100,000 {name}": ("lookup", attacks.lookup_of(name, 100_000)[0]) for name in LOOKUPS},
}


@pytest.mark.parametrize("name", ATTACKS)
def test_livez_beside_expensive_requests(report, tmp_path, name):
    verb, body = ATTACKS[name]
    quiet = GatewayProcess(None, tmp_path / "quiet", *FREE, module=STUB)
    with quiet, GatewayProcess(None, tmp_path / "stub", *FREE, module=STUB) as stub:
        quiet.wait_ready()
        stub.wait_ready()
        path = f"/v1/models/m:{verb}"
        undisturbed, beside = delays_beside(stub, quiet, lambda _: stub.ask("POST", path, body))
        peak = peak_kb(stub.process.pid)
    report.row("Gateway: /livez beside 4 clients with one expensive request each", {
        "request": name,
        "p99 ms of a quiet gateway": undisturbed * 1e3,
        "p99 ms": beside * 1e3,
        "peak MB, all processes": peak / 1e3,
    })  # fmt: skip
    # The quiet delay counts as at least 5 ms.
    report.bars.append(
        Bar(f"20 x quiet / beside {name}", 20 * max(undisturbed, 0.005) / beside, 1, 4)
    )
    report.bars.append(Bar(f"1,500 MB / peak of {name}", 1_500_000 / peak, 1, 4))


def peak_kb(pid: int) -> int:
    """Returns the largest memory that a process and each of its children had, summed up."""
    texts = (Path(f"/proc/{each}/status").read_text() for each in (pid, *children_of(pid)))
    return sum(int(text.split("VmHWM:")[1].split()[0]) for text in texts if "VmHWM:" in text)
