"""Endless runs of a model stop at the deadline, and with the process."""

from __future__ import annotations

import json
import shutil
import signal
import socket

from tests.server.support.gateway_process import GatewayProcess

PATH = "/v1/models/ranker:predict"
FOREVER = {"signature_name": "slow", "inputs": 2_000_000_000}
SHORT = {"signature_name": "slow", "inputs": 1}


def test_a_run_ends_after_its_deadline_and_leaves_its_thread_to_others(saved_models, tmp_path):
    folder = tmp_path / "ranker"
    shutil.copytree(saved_models / "1", folder / "1")
    with GatewayProcess(folder, tmp_path / "log", "--threads", "1") as gateway:
        gateway.wait_ready()
        assert gateway.ask("POST", PATH, SHORT).status == 200
        late = gateway.ask("POST", PATH, FOREVER, {"X-Request-Timeout-Ms": "300"})
        assert (late.status, late.error) == (504, "Deadline exceeded")
        assert gateway.ask("POST", PATH, SHORT).status == 200


def test_the_process_ends_while_a_model_runs(saved_models, tmp_path):
    folder = tmp_path / "ranker"
    shutil.copytree(saved_models / "1", folder / "1")
    flags = ("--drain-seconds", "0", "--shutdown-seconds", "1")
    with GatewayProcess(folder, tmp_path / "log", *flags) as gateway:
        gateway.wait_ready()
        body = json.dumps(FOREVER).encode()
        with socket.create_connection(("127.0.0.1", gateway.port)) as client:
            head = f"POST {PATH} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
            client.sendall(head.encode() + body)
            gateway.wait_in_flight(1)
            gateway.process.send_signal(signal.SIGTERM)
            assert gateway.process.wait(45) == 0
        assert "a model still runs" in gateway.log()
        assert "Traceback" not in gateway.log()
