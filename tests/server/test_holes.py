"""Models that fail, workers that die, endless runs and forged requests delay no other request.

`test_attacks.py` has the attacks with large requests.
"""

from __future__ import annotations

import asyncio
import http.client
import itertools
import json
import os
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import jwt
import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric import ed25519

from server.app import create_app
from server.dataplane.plane import DataPlane
from server.protos.modules import load_protos
from server.protos.tensors import fill_proto
from server.settings import load_settings
from server.tensors import dtype_of_name
from tests.server.support.asgi import send
from tests.server.support.attack import CLIENTS, check_others_are_answered, several
from tests.server.support.children import children_of
from tests.server.support.eventually import PATIENCE_S, wait_until
from tests.server.support.gateway_process import (
    ROOT,
    STUB,
    GatewayProcess,
    command,
    environment,
    make_key,
)
from tests.server.support.light_upstream import LightUpstream
from tests.server.support.numpy_engine import NumpyEngine

PREDICT = "/v1/models/m:predict"
RANKER = "/v1/models/ranker:predict"
BODY = {"instances": [1.0]}
FOREVER = {"signature_name": "slow", "inputs": 2_000_000_000}
SHORT = {"signature_name": "slow", "inputs": 1}


@pytest.mark.slow
def test_models_that_fail_or_load_do_not_change_readiness(saved_models, tmp_path):
    models = tmp_path / "models"
    shutil.copytree(saved_models / "1", models / "ranker" / "1")
    with GatewayProcess(models, tmp_path / "log", "--poll-seconds", "0.1") as gateway:
        gateway.wait_ready()
        done, numbers = threading.Event(), itertools.count()

        def state_of(model: str, word: bytes) -> bool:
            return word in gateway.ask("GET", f"/v1/models/{model}").body

        def add_and_remove() -> None:
            broken, good = f"broken{next(numbers)}", f"good{next(numbers)}"
            (models / broken / "1").mkdir(parents=True)
            (models / broken / "1" / "saved_model.pb").write_bytes(b"none")
            shutil.copytree(saved_models / "2", models / good / "2")
            wait_until(lambda: state_of(broken, b'"END"'))
            wait_until(lambda: state_of(good, b"AVAILABLE"))
            shutil.rmtree(models / broken)
            wait_until(lambda: state_of(broken, b"Could not find"))

        def attack(client: int) -> set[int]:
            if client == 0:
                done.clear()
                try:
                    add_and_remove()
                finally:
                    done.set()
            statuses = set()
            while not done.wait(0.02) or not statuses:
                statuses.add(gateway.ask("GET", "/readyz").status)
            return statuses

        statuses = check_others_are_answered(gateway, attack)
        assert statuses == [{200}] * CLIENTS


@pytest.mark.slow
def test_a_killed_worker_is_replaced_and_no_request_waits_for_it(tmp_path):
    with LightUpstream() as upstream, GatewayProcess(
        None, tmp_path / "log", "--engine", "tfserving", "--models", "m", "--workers", "2",
        "--upstreams", f"127.0.0.1:{upstream.port}", "--drain-seconds", "0",
    ) as gateway:  # fmt: skip
        for _ in range(20):  # the system chooses the worker of each request
            gateway.wait_ready()

        def starts() -> set[bytes]:
            lines = gateway.ask("GET", "/metrics").body.splitlines()
            return {line for line in lines if line.startswith(b"process_start_time_seconds")}

        statuses, before = set(), starts()
        os.kill(children_of(gateway.process.pid)[1], signal.SIGKILL)
        while True:
            try:
                statuses.add(gateway.ask("POST", PREDICT, BODY).status)
                if starts() not in (before, set()):
                    break
            except ConnectionError:
                continue  # the killed worker had not accepted this connection yet
        # The system gives half of these requests to the new worker.
        statuses |= {gateway.ask("POST", PREDICT, BODY).status for _ in range(50)}
        assert statuses == {200}


@pytest.mark.slow
def test_endless_runs_end_at_their_deadline_and_with_the_process(saved_models, tmp_path):
    folder = tmp_path / "ranker"
    shutil.copytree(saved_models / "1", folder / "1")
    flags = ("--threads", "1", "--drain-seconds", "0", "--shutdown-seconds", "1")
    body = json.dumps(FOREVER).encode()
    with GatewayProcess(folder, tmp_path / "log", *flags) as gateway:
        gateway.wait_ready()

        def ask_only(*headers: str) -> socket.socket:
            client = socket.create_connection(("127.0.0.1", gateway.port))
            lines = (f"POST {RANKER} HTTP/1.1", "Host: x", f"Content-Length: {len(body)}", *headers)
            client.sendall("\r\n".join([*lines, "", ""]).encode() + body)
            return client

        def attack(_: int) -> tuple[int, str]:
            ask_only("X-Request-Timeout-Ms: 300").close()
            late = gateway.ask("POST", RANKER, body, {"X-Request-Timeout-Ms": "300"})
            return late.status, late.error

        late = check_others_are_answered(gateway, attack)
        assert late == [(504, "Deadline exceeded")] * CLIENTS
        assert gateway.ask("POST", RANKER, SHORT).status == 200

        with ask_only():
            gateway.wait_in_flight(1)
            gateway.process.send_signal(signal.SIGTERM)
            assert gateway.process.wait(PATIENCE_S) == 0
        assert "a model still runs" in gateway.log()
        assert "Traceback" not in gateway.log()


def ask_from(address: str, port: int, body: bytes, length: int) -> socket.socket:
    """Sends a predict of which only some bytes of the body have arrived."""
    client = socket.create_connection(("127.0.0.1", port), PATIENCE_S, source_address=(address, 0))
    head = f"POST {PREDICT} HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n"
    client.sendall(head.encode() + body)
    return client


def test_bodies_that_trickle_take_no_places(tmp_path):
    body = json.dumps(BODY).encode()
    flags = ("--max-in-flight", "40", "--client-in-flight", "40", "--body-seconds", "60")
    with GatewayProcess(None, tmp_path / "log", *flags, module=STUB) as gateway:
        gateway.wait_ready()

        def attack(_: int) -> tuple[set[int], bytes]:
            slow = [ask_from("127.0.0.2", gateway.port, b"{", 1000) for _ in range(50)]
            slow_ones.wait(PATIENCE_S)
            statuses = several(lambda: gateway.ask("POST", PREDICT, body).status)
            with ask_from("127.0.0.2", gateway.port, body, len(body)) as client:
                answer = client.recv(65536)
            slow_ones.wait(PATIENCE_S)
            for each in slow:
                each.close()
            return statuses, answer

        slow_ones = threading.Barrier(CLIENTS)

        for statuses, answer in check_others_are_answered(gateway, attack):
            assert statuses == {200}
            assert answer.startswith(b"HTTP/1.1 200 ")


class Keyed:
    """A gateway with a key per scope, HTTP and gRPC."""

    def __init__(self, folder: Path, *flags: str) -> None:
        self.file = folder / "keys.yaml"
        names = {"predict": ("predict",) * 2, "lookup": ("lookup",) * 2}
        names["removed"] = ("removed", "lookup")
        made = {name: make_key(*each) for name, each in names.items()}
        self.keys = {name: key for name, (key, _) in made.items()}
        self.lines = {name: line for name, (_, line) in made.items()}
        self.file.write_text("keys:\n" + "\n".join(self.lines.values()) + "\n")
        self.process = GatewayProcess(
            None, folder / "log", "--keys-file", str(self.file), "--grpc-port", "0",
            "--drain-seconds", "2", *flags, module=STUB,
        )  # fmt: skip

    def post(self, name: str, path: str, body: Any, **headers: str) -> tuple[int, str]:
        reply = self.process.ask("POST", path, body, {"x-api-key": self.keys[name], **headers})
        return reply.status, reply.error if reply.status != 200 else ""

    def call(self, name: str, request: Any) -> tuple[str, Any]:
        """Calls Predict; returns OK and the answer, or the status code and its details."""
        options = [("grpc.max_receive_message_length", 64 << 20)]
        with grpc.insecure_channel(f"127.0.0.1:{self.grpc_port}", options=options) as channel:
            stub = load_protos().prediction_service.stub(channel)
            try:
                return "OK", stub.Predict(request, metadata=[("x-api-key", self.keys[name])])
            except grpc.RpcError as error:
                return error.code().name, error.details()


@pytest.fixture(scope="module")
def keyed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Keyed]:
    keyed = Keyed(tmp_path_factory.mktemp("keyed"), "--ui", "--rate-per-second", "0")
    with keyed.process as gateway:
        keyed.grpc_port = gateway.port_of("gRPC")
        gateway.wait_ready()
        yield keyed


def proto(signature: str, **inputs: np.ndarray) -> Any:
    request = load_protos().predict.PredictRequest()
    request.model_spec.name, request.model_spec.signature_name = "m", signature
    for name, values in inputs.items():
        dtype = "float" if values.dtype == np.float32 else "int64"
        fill_proto(request.inputs[name], values, dtype_of_name(dtype))
    return request


def infer(signature: str, ids: list[int]) -> dict[str, Any]:
    tensor = {"name": "ids", "datatype": "INT64", "shape": [len(ids)], "data": ids}
    return {"inputs": [tensor], "parameters": {"signature_name": signature}}


EMBEDDINGS = {
    "predict": lambda keyed: keyed.post(
        "predict", PREDICT, {"signature_name": "de_lookup/user", "instances": [7]}
    ),
    "infer": lambda keyed: keyed.post(
        "predict", "/v2/models/m/infer", infer("de_lookup/user", [7])
    ),
    "gRPC": lambda keyed: keyed.call("predict", proto("de_lookup/user", ids=np.array([7]))),
}


@pytest.mark.parametrize("name", EMBEDDINGS)
def test_a_key_for_predicting_reads_no_embeddings(keyed, name):
    attack = partial(several, partial(EMBEDDINGS[name], keyed))
    answers = set().union(*check_others_are_answered(keyed.process, lambda _: attack()))
    assert {code for code, _ in answers} <= {403, "PERMISSION_DENIED"}
    assert all("does not open the scope lookup" in error for _, error in answers)


LARGE = {
    "at most 100000 ids": ("lookup", lambda: proto("de_lookup/wide", ids=np.arange(100_001))),
    "at most 4000000 values": ("predict", lambda: proto("", x=np.ones(4_000_001, np.float32))),
    "at most 8 dimensions": ("predict", lambda: proto("", x=np.ones((1,) * 9, np.float32))),
}


@pytest.mark.parametrize("error", LARGE)
def test_grpc_has_the_limits_of_http(keyed, error):
    key, make = LARGE[error]
    request = make()
    for code, told in check_others_are_answered(keyed.process, lambda _: keyed.call(key, request)):
        assert code == "INVALID_ARGUMENT"
        assert error in told


def test_ids_that_others_looked_up_need_the_scope_lookup(keyed):
    secret = 2**53 + 1
    lookup = {"table": "user", "ids": [secret]}
    path = "/ui/sample?model=m&table=user"
    assert keyed.post("lookup", "/v1/models/m:lookup", lookup)[0] == 200

    def sample(key: str) -> tuple[int, bool]:
        reply = keyed.process.ask("GET", path, headers={"x-api-key": keyed.keys[key]})
        return reply.status, str(secret).encode() in reply.body

    wait_until(lambda: sample("lookup") == (200, True))
    attack = partial(several, lambda: sample("predict"))
    answers = check_others_are_answered(keyed.process, lambda _: attack())
    assert answers == [{(403, False)}] * CLIENTS


def test_a_removed_key_opens_nothing_and_sighup_ends_nobody(tmp_path):
    keyed = Keyed(tmp_path)
    with keyed.process as gateway:
        gateway.wait_ready()

        def attack(_: int) -> set[int]:
            gateway.process.send_signal(signal.SIGHUP)
            return several(lambda: keyed.post("removed", PREDICT, BODY)[0])

        assert set().union(*check_others_are_answered(gateway, attack)) == {403}
        keyed.file.write_text("keys:\n" + keyed.lines["predict"] + "\n")
        wait_until(lambda: keyed.post("removed", PREDICT, BODY)[0] == 401)
        assert set().union(*check_others_are_answered(gateway, attack)) == {401}
        assert keyed.post("predict", PREDICT, BODY)[0] == 200


def test_forged_requests_are_refused(keyed):
    port, twice = keyed.process.port, proto("", x=np.ones(2, np.float32))
    twice.output_filter.extend(["y", "y"])

    def send(hosts: bytes) -> bytes:
        with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) as client:
            client.sendall(b"GET /livez HTTP/1.1\r\n" + hosts + b"\r\n")
            return client.recv(65536).split(b"\r\n")[0]

    def attack(_: int) -> tuple[set[bytes], set[tuple[int, ...]]]:
        refused = several(lambda: send(b"")) | {send(b"Host: x\r\nHost: x\r\n")}
        code, answer = keyed.call("predict", twice)
        assert code == "OK"
        return refused, {tuple(dim.size for dim in answer.outputs["y"].tensor_shape.dim)}

    for answers in check_others_are_answered(keyed.process, attack):
        assert answers == ({b"HTTP/1.1 400 Bad Request"}, {(2,)})


def test_invented_addresses_give_no_client_a_higher_rate():
    settings = load_settings(model_dir="x", rate_per_second="20")  # a burst of 40 requests
    plane = DataPlane(NumpyEngine(), settings, None, clock=lambda: 0.0)
    app = create_app(settings, plane.engine, plane=plane)

    async def attack() -> list[int]:
        async with app.router.lifespan_context(app):
            return [
                (await send(app, "POST", PREDICT, json.dumps(BODY).encode(), headers)).status
                for headers in ({"X-Forwarded-For": f"10.0.0.{number}"} for number in range(100))
            ]

    assert asyncio.run(attack()) == [200] * 40 + [429] * 60


def test_a_token_with_a_wrong_scope_is_no_failure(tmp_path):
    key = ed25519.Ed25519PrivateKey.generate()
    public = jwt.algorithms.OKPAlgorithm.to_jwk(key.public_key(), as_dict=True)
    file = tmp_path / "keys.json"
    file.write_text(json.dumps({"keys": [{**public, "kid": "k", "alg": "EdDSA"}]}))
    claims = {"iss": "i", "aud": "a", "sub": "shop", "exp": time.time() + 600}
    flags = ("--jwt-keys-file", str(file), "--jwt-issuer", "i", "--jwt-audience", "a")
    with GatewayProcess(None, tmp_path / "log", *flags, module=STUB) as gateway:
        gateway.wait_ready()

        def status(scope: object) -> int:
            text = jwt.encode({**claims, "scope": scope}, key, "EdDSA", headers={"kid": "k"})
            headers = {"Authorization": f"Bearer {text}"}
            return gateway.ask("POST", PREDICT, BODY, headers).status

        attack = partial(several, lambda: status(7))
        answers = set().union(*check_others_are_answered(gateway, lambda _: attack()))
        assert answers <= {401, 403}
        assert status("predict") == 200
        assert "Traceback" not in gateway.log()


def test_while_it_stops_every_question_is_answered(tmp_path):
    flags = ("--drain-seconds", "2")
    with GatewayProcess(None, tmp_path / "log", *flags, module=STUB) as gateway:
        gateway.wait_ready()
        connection = http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=PATIENCE_S)

        def stays_open() -> bool:
            connection.request("GET", "/livez")
            response = connection.getresponse()
            assert response.read() == b'{"status":"ok"}'
            return response.getheader("connection") != "close"

        assert stays_open()
        gateway.process.send_signal(signal.SIGTERM)
        while stays_open():  # a reset of the busy connection fails the test
            pass
        assert gateway.process.wait(PATIENCE_S) == 0


STARTS = {
    "port": ("Port {port} of 127.0.0.1 must be free", "--port {port}"),
    "gRPC port": ("Port {port} of 127.0.0.1 must be free", "--port 0 --grpc-port {port}"),
    "workers": ("Port {port} of 127.0.0.1 must be free", "--port {port} --workers 2"),
    "certificate": (
        "The files must hold a certificate and its private key",
        "--port 0 --workers 2 --tls-cert {file} --tls-key {file}",
    ),
    "keys": ("keys", "--port 0 --workers 2 --keys-file {file}"),
}


# Slow: `test_command_line.py` starts such gateways one by one, most in the test's process.
@pytest.mark.slow
@pytest.mark.parametrize("name", STARTS)
def test_a_gateway_that_cannot_start_says_so_and_leaves_the_others_alone(keyed, tmp_path, name):
    sentence, flags = STARTS[name]
    names = {"port": keyed.process.port, "file": tmp_path / "file"}
    names["file"].write_text("nothing")
    given = ("--model-dir", str(tmp_path), *flags.format(**names).split())

    def attack(client: int) -> None:
        if client < 2:
            done = subprocess.run(
                command(*given), cwd=ROOT, env=environment(), capture_output=True, text=True,
                timeout=PATIENCE_S, check=False,
            )  # fmt: skip
            assert (done.returncode, done.stdout) == (2, "")
            assert len(done.stderr.splitlines()) == 1
            assert sentence.format(**names) in done.stderr

    check_others_are_answered(keyed.process, attack)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("versions", "flags", "sentence"),
    [
        ((), (), "The model folder must hold a version to serve."),
        ((1,), ("--version-policy", "9"), "Received: 9; model m has 1."),
        ((1,), ("--labels", "stable=9"), "Received: m:stable=9; "),
    ],
)
def test_a_version_that_is_missing_is_told_before_the_gateway_listens(
    keyed, tmp_path, versions, flags, sentence
):
    folder = tmp_path / "m"
    folder.mkdir()
    for version in versions:
        (folder / str(version)).mkdir()
        (folder / str(version) / "saved_model.pb").touch()

    def attack(client: int) -> str:
        if client:
            return ""
        with subprocess.Popen(
            command("--model-dir", str(folder), "--port", "0", *flags), cwd=ROOT,
            env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        ) as process:  # fmt: skip
            assert process.stderr is not None
            line = process.stderr.readline()
            process.kill()
        return line

    assert sentence in check_others_are_answered(keyed.process, attack)[0]
