"""Several worker processes: one port, common labels, merged metrics, and no leftover processes."""

import asyncio
import json
import os
import re
import shutil
import signal
import socket
from pathlib import Path
from typing import Any

import pytest

from server.app import create_app
from server.observability.metrics import Metrics
from server.observability.worker_metrics import keep_written
from server.process.gateway import Gateway
from server.process.workers import Worker, WorkerSupervisor
from server.settings import load_settings
from tests.server.support.eventually import PATIENCE_S, eventually, wait_until
from tests.server.support.gateway_process import GatewayProcess, children_of, write_key
from tests.server.support.light_upstream import fronted
from tests.server.support.numpy_engine import NumpyEngine
from tests.server.support.virtual_time import in_virtual_time

PREDICT = "/v1/models/m:predict"
BODY = {"instances": [1.0]}


def answered(metrics: bytes, worker: bytes = rb"\d") -> float:
    """Returns how many predicts a worker has answered, or all workers."""
    line = rb'^gateway_requests_total{worker="%b",.*verb="predict"} (.*)$' % worker
    return sum(map(float, re.findall(line, metrics, re.MULTILINE)))


def all_answer(gateway: GatewayProcess, *request: Any) -> bool:
    """Asks often enough to reach each worker: the system chooses the worker of each request."""
    return all(gateway.ask(*request).status == 200 for _ in range(20))


def process_starts(metrics: bytes) -> set[bytes]:
    """Returns when each worker started, as the metrics of all workers say."""
    name = b"process_start_time_seconds"
    return {line for line in metrics.splitlines() if line.startswith(name)}


@pytest.mark.slow
def test_workers_share_port_labels_and_metrics_and_are_replaced(tmp_path):
    key, keys = write_key(tmp_path, "predict", "admin")
    headers = {"x-api-key": key}
    flags = ("--workers", "2", "--admin-port", "0", "--keys-file", str(keys))
    with fronted(tmp_path, 3, flags=flags) as (gateway, _):
        admin_port = gateway.port_of("Admin API")
        wait_until(lambda: all_answer(gateway, "GET", "/readyz"))
        for _ in range(40):
            assert gateway.ask("POST", PREDICT, BODY, headers).status == 200

        # Every worker got some requests, and each worker reports the requests of both workers.
        told = gateway.wait_for("/metrics", lambda reply: answered(reply.body) >= 40).body
        assert answered(told, b"0") > 0
        assert answered(told, b"1") > 0
        assert told.count(b"# TYPE gateway_requests_total counter") == 1

        # A label set through the worker with the admin port also applies in the other worker.
        path = "/admin/models/m/labels/stable"
        reply = gateway.ask("PUT", path, {"version": 3}, headers, port=admin_port)
        assert reply.json()["labels"] == {"m": {"stable": 3}}
        labelled = "/v1/models/m/labels/stable:predict"
        wait_until(lambda: all_answer(gateway, "POST", labelled, BODY, headers))

        children = children_of(gateway.process.pid)
        assert len(children) == 2
        os.kill(children[1], signal.SIGKILL)
        # Send no request here: connections that wait for the killed worker to accept them are
        # reset.
        wait_until(lambda: len({*children_of(gateway.process.pid)} - {children[1]}) == 2)
        children = children_of(gateway.process.pid)
        # Another worker dies, and shutdown begins before it is replaced.
        os.kill(children[1], signal.SIGKILL)
        wait_until(lambda: len(children_of(gateway.process.pid)) == 1)
        gateway.process.terminate()
        assert gateway.process.wait(PATIENCE_S) == 0
        assert [pid for pid in children if Path(f"/proc/{pid}").exists()] == []


@pytest.mark.slow
def test_a_worker_that_hangs_is_replaced(tmp_path):
    with fronted(tmp_path, 3, flags=("--workers", "2")) as (gateway, _):
        # A worker that still starts is never too slow. Wait until both have started.
        gateway.wait_for("/metrics", lambda reply: len(process_starts(reply.body)) == 2)
        hung, other = children_of(gateway.process.pid)
        os.kill(hung, signal.SIGSTOP)
        wait_until(lambda: len({*children_of(gateway.process.pid)} - {hung}) == 2)
        assert other in children_of(gateway.process.pid)
        (said,) = [line for line in gateway.log().splitlines() if "does not respond" in line]
        assert json.loads(said)["message"] == "worker 0 does not respond and is killed"
        # A worker that hangs while all end is killed too.
        os.kill(other, signal.SIGSTOP)
        gateway.process.terminate()
        assert gateway.process.wait(PATIENCE_S) == 0


@pytest.fixture
def worker(tmp_path):
    return Worker(0, tmp_path, os.getpid())


class Unwritable(Metrics):
    """Metrics whose text cannot be made, as with a model's name that is no Unicode."""

    def exposition(self):
        raise UnicodeEncodeError("utf-8", "\udce9", 0, 1, "surrogates not allowed")


@pytest.mark.parametrize("metrics", [Metrics, Unwritable])
@in_virtual_time
async def test_the_heartbeat_needs_the_event_loop_and_nothing_else(worker, metrics):
    worker.heartbeat.touch()
    task = asyncio.create_task(keep_written(metrics(), worker.heartbeat))
    await asyncio.sleep(0)
    os.utime(worker.heartbeat, (1, 1))
    await asyncio.sleep(2)
    task.cancel()
    assert worker.heartbeat.stat().st_mtime > 1


def test_a_worker_without_new_heartbeats_hangs_unless_it_still_starts(tmp_path, worker):
    supervisor = WorkerSupervisor(load_settings(workers=2, model_dir=tmp_path), [])
    worker.heartbeat.touch()
    os.utime(worker.heartbeat, (0, 0))
    assert not any(supervisor._hangs(worker) for _ in range(300))
    for second in (1, 2):
        os.utime(worker.heartbeat, (second, second))
        assert not any(supervisor._hangs(worker) for _ in range(50))
    assert any(supervisor._hangs(worker) for _ in range(100))


@in_virtual_time
async def test_a_failed_write_of_metrics_is_logged_and_tried_again(tmp_path, caplog):
    folder = tmp_path / "shared"
    folder.write_text("no folder")
    worker = Worker(0, folder, os.getpid())
    task = asyncio.create_task(keep_written(Metrics(), worker.heartbeat))
    await asyncio.sleep(3)
    folder.unlink()
    await asyncio.sleep(3)
    task.cancel()
    assert worker.heartbeat.stat().st_mtime > 0
    assert caplog.text.count("other workers do not see this worker's metrics") == 1
    assert b"gateway_in_flight" in (folder / "0.prom").read_bytes()


# Slow: two workers load TensorFlow, and a third one replaces the killed one.
@pytest.mark.slow
def test_while_a_killed_worker_is_replaced_the_other_one_answers(saved_models, tmp_path):
    body = {"instances": [{"user": 7, "item": "x"}]}
    flags = ("--model-name", "ranker", "--workers", "2", "--drain-seconds", "0")
    folder = tmp_path / "ranker"
    shutil.copytree(saved_models / "1", folder / "1")
    with GatewayProcess(folder, tmp_path / "log", *flags) as gateway:
        gateway.wait_for("/metrics", lambda reply: reply.body.count(b"gateway_in_flight{") == 2)
        wait_until(lambda: all_answer(gateway, "GET", "/readyz"))
        before = children_of(gateway.process.pid)
        metrics = gateway.ask("GET", "/metrics").body
        os.kill(before[1], signal.SIGKILL)
        statuses, starts = set(), process_starts(metrics)
        while starts == process_starts(metrics):
            try:
                statuses.add(gateway.ask("POST", "/v1/models/ranker:predict", body).status)
                starts = process_starts(gateway.ask("GET", "/metrics").body)
            except ConnectionError:
                # The killed worker had not accepted this connection yet.
                continue
        # The system gives half of these requests to the new worker.
        for _ in range(50):
            statuses.add(gateway.ask("POST", "/v1/models/ranker:predict", body).status)
        assert statuses == {200}


@pytest.mark.slow
def test_workers_end_when_the_process_that_looks_after_them_is_killed(tmp_path):
    with fronted(tmp_path, 3, flags=("--workers", "2")) as (gateway, _):
        children = children_of(gateway.process.pid)
        gateway.process.kill()
        wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in children))


@pytest.mark.slow
def test_a_worker_that_starts_during_shutdown_ends_too(tmp_path, worker):
    arguments = {"workers": 2, "model_dir": tmp_path}
    supervisor = WorkerSupervisor(load_settings(**arguments), ["--model-dir", str(tmp_path)])
    supervisor._pass_on(signal.SIGTERM, None)
    supervisor._start(worker)
    process = supervisor._processes[0]
    process.communicate(timeout=PATIENCE_S)
    assert process.returncode == -signal.SIGTERM


@pytest.mark.slow
@pytest.mark.parametrize("workers", ["1", "2"])
def test_sighup_reads_the_keys_and_ends_nobody(tmp_path, workers):
    key, keys = write_key(tmp_path, "predict")
    flags = ("--workers", workers, "--keys-file", str(keys))
    with fronted(tmp_path, 3, flags=flags) as (gateway, _):
        gateway.wait_for("/livez", lambda reply: reply.status == 200)
        before = children_of(gateway.process.pid)
        keys.write_text("broken")
        gateway.process.send_signal(signal.SIGHUP)
        # No request arrives: the signal alone makes each process read the file.
        wait_until(lambda: gateway.log().count("the keys stay as they were") == int(workers))
        assert children_of(gateway.process.pid) == before
        assert gateway.process.poll() is None
        assert gateway.ask("POST", PREDICT, BODY, {"x-api-key": key}).status != 401


def test_a_worker_takes_no_connections_while_it_starts(worker):
    settings = load_settings(engine="tfserving", models="m", upstreams="127.0.0.1:1")
    gateway = Gateway(settings, worker)
    port = gateway._listener.getsockname()[1]
    with gateway._listener, pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S).close()


@in_virtual_time
async def test_a_worker_that_replaces_another_starts_once_its_models_are_loaded():
    engine = NumpyEngine(is_ready=False)
    app = create_app(load_settings(model_dir="unused"), engine, load_first=True)
    started = asyncio.Event()

    async def run():
        async with app.router.lifespan_context(app):
            started.set()

    task = asyncio.create_task(run())
    await eventually(lambda: engine.events)
    with pytest.raises(asyncio.TimeoutError):
        await asyncio.wait_for(started.wait(), 0.2)
    engine.is_ready = True
    await task
    assert started.is_set()
