"""Expensive requests: other clients get answers meanwhile, and memory stays bounded."""

from __future__ import annotations

import functools
import gzip
import json
import socket
from collections.abc import Iterator
from pathlib import Path

import grpc
import numpy as np
import pytest

from server.protos.modules import load_protos
from server.wire.media import RAW
from tests.server.support.attack import MEMORY_KB, check_others_are_answered, peak_kb
from tests.server.support.children import children_of
from tests.server.support.eventually import wait_until
from tests.server.support.gateway_process import STUB, GatewayProcess
from tests.server.support.light_upstream import LightUpstream


@pytest.fixture
def stub(tmp_path: Path) -> Iterator[GatewayProcess]:
    with GatewayProcess(
        None, tmp_path / "log", "--drain-seconds", "0", "--request-seconds", "20", module=STUB
    ) as gateway:
        gateway.wait_ready()
        yield gateway
        assert gateway.ask("POST", "/v1/models/m:predict", {"instances": [1.0]}).status == 200


def post(gateway: GatewayProcess, path: str, body: bytes, headers: dict[str, str]) -> int:
    return gateway.ask("POST", path, body, headers).status


def values(text: bytes, count: int) -> bytes:
    return b'{"instances":[' + b",".join([text] * count) + b"]}"


def examples(text: bytes, count: int) -> bytes:
    return b'{"signature_name":"old","examples":[' + b",".join([text] * count) + b"]}"


# To read a body with too many examples takes more memory than this. To refuse it takes less.
UNREAD_KB = 500_000
BODIES = {
    "examples in gzip": ("classify", examples(b"{}", 3_000_000), True, {400}),
    "examples": ("classify", examples(b'{"age":1}', 1_000_000), False, {400}),
    "infinities in gzip": ("predict", values(b"-Inf", 3_900_000), True, {200, 504}),
    "numbers": ("predict", values(b"1.5", 3_900_000), False, {200, 504}),
    "one long id": (
        "lookup",
        b'{"table":"user","ids":["' + b"7" * 30_000_000 + b'"]}',
        False,
        {400},
    ),
    "no JSON": ("lookup", b'{"table":"user","ids":[' + b"7," * 3_900_000, False, {400}),
    "admitted examples": ("classify", examples(b'{"age":1}', 100_000), False, {200, 504}),
}


@pytest.mark.parametrize("name", BODIES)
def test_an_expensive_body_delays_no_other_request(stub, bystander, name):
    verb, body, zipped, wanted = BODIES[name]
    headers = {"Content-Encoding": "gzip"} if zipped else {}
    sent = gzip.compress(body, 9) if zipped else body
    statuses = check_others_are_answered(
        stub,
        bystander,
        lambda _: post(stub, f"/v1/models/m:{verb}", sent, headers),
        memory_kb=UNREAD_KB if (verb, wanted) == ("classify", {400}) else MEMORY_KB,
    )
    assert set(statuses) <= wanted


MANY = json.dumps([7] * 100_000)
LOOKUPS = {
    "rows in JSON": ("", {}),
    "rows in base64": (',"format":"b64"', {}),
    "rows in bytes without the unknown": (',"missing":"null"', {"Accept": RAW}),
    "bags": (',"combiner":"mean"', {}),
    "bags in bytes": (',"combiner":"mean","missing":"null"', {"Accept": RAW}),
}


@pytest.mark.parametrize("name", LOOKUPS)
def test_an_expensive_answer_delays_no_other_request(stub, bystander, name):
    options, headers = LOOKUPS[name]
    ids = f"[{MANY}]" if "bags" in name else MANY
    body = f'{{"table":"wide","ids":{ids}{options}}}'.encode()
    attack = functools.partial(post, stub, "/v1/models/m:lookup", body, headers)
    assert set(check_others_are_answered(stub, bystander, lambda _: attack())) == {200}


@pytest.mark.parametrize("options", ['"missing":"null"', '"combiner":"mean","missing":"null"'])
def test_an_expensive_inference_delays_no_other_request(stub, bystander, options):
    ids = np.full((1, 100_000), 7, "<i8").tobytes()
    text = (
        '{"inputs":[{"name":"ids","datatype":"INT64","shape":[1,100000],"parameters":'
        f'{{"binary_data_size":{len(ids)}}}}}],'
        f'"parameters":{{"signature_name":"de_lookup/wide","binary_data_output":true,{options}}}}}'
    ).encode()
    headers = {"Inference-Header-Content-Length": str(len(text))}
    attack = functools.partial(post, stub, "/v2/models/m/infer", text + ids, headers)
    assert set(check_others_are_answered(stub, bystander, lambda _: attack())) == {200}


def test_the_work_of_a_request_ends_at_its_deadline(stub):
    body = values(b"-Inf", 3_900_000)
    headers = {"X-Request-Timeout-Ms": "200"}
    assert post(stub, "/v1/models/m:predict", body, headers) == 504
    wait_until(lambda: not children_of(stub.process.pid))


def many_examples() -> bytes:
    """Returns a ClassificationRequest with as many examples as a request may hold."""
    request = load_protos().classification.ClassificationRequest()
    request.model_spec.name, request.model_spec.signature_name = "m", "old"
    example = load_protos().example.Example()
    for index in range(10):
        example.features.feature[f"feature {index}"].int64_list.value.append(index)
    example.features.feature["age"].int64_list.value.append(7)
    request.input.example_list.examples.extend([example] * 100_000)
    return bytes(request.SerializeToString())


@pytest.mark.slow  # Six processes share the cores: a busy machine delays every answer.
def test_many_examples_on_their_way_to_a_model_server_delay_no_other_request(bystander, tmp_path):
    body, most = many_examples(), ("grpc.max_receive_message_length", 64 << 20)
    with LightUpstream() as upstream, GatewayProcess(
        None, tmp_path / "log", "--engine", "tfserving", "--models", "m", "--grpc-port", "0",
        "--upstreams", f"127.0.0.1:{upstream.port}", "--drain-seconds", "0",
    ) as gateway:  # fmt: skip
        port = gateway.port_of("gRPC")
        gateway.wait_ready()

        def attack(_: int) -> int:
            with grpc.insecure_channel(f"127.0.0.1:{port}", options=[most]) as channel:
                classify = channel.unary_unary("/tensorflow.serving.PredictionService/Classify")
                answer = classify(body, timeout=120)
            response = load_protos().classification.ClassificationResponse.FromString(answer)
            return len(response.result.classifications)

        assert set(check_others_are_answered(gateway, bystander, attack)) == {100_000}


ENDLESS = {
    "value": b"POST /v1/models/m:predict HTTP/1.1\r\nHost: x\r\nX: ",
    "name": b"POST /v1/models/m:predict HTTP/1.1\r\nHost: x\r\n",
    "path": b"GET /",
    "trailer": b"POST /v1/models/m:predict HTTP/1.1\r\nHost: x\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n0\r\nX: ",
}


@pytest.mark.parametrize("name", ENDLESS)
def test_a_head_without_end_is_cut_off(stub, bystander, name):
    def attack(_: int) -> int:
        sent = 0
        with socket.create_connection(("127.0.0.1", stub.port), timeout=60) as connection:
            connection.sendall(ENDLESS[name])
            try:
                while sent < 256 << 20:
                    connection.sendall(b"a" * (1 << 20))
                    sent += 1 << 20
            except OSError:
                pass
        return sent

    sent = check_others_are_answered(stub, bystander, attack)
    # The gateway closed the connection when the client had sent little more than fits into the
    # kernel's buffers.
    assert max(sent) < 32 << 20


def test_a_head_that_is_too_large_is_answered(stub):
    with socket.create_connection(("127.0.0.1", stub.port), timeout=60) as connection:
        connection.sendall(b"GET /livez HTTP/1.1\r\nHost: x\r\nX: " + b"a" * 40_000)
        answer = connection.recv(65536)
    assert answer.startswith(b"HTTP/1.1 431 ")
    assert b"Request head exceeds 32768 bytes" in answer


def test_a_large_context_of_many_examples_is_refused(stub):
    context = b'{"text":"' + b"a" * 1_000_000 + b'"}'
    body = examples(b'{"age":1}', 10_000)[:-1] + b',"context":' + context + b"}"
    reply = stub.ask("POST", "/v1/models/m:classify", body)
    assert reply.status == 400
    assert reply.error.startswith("The context must take at most 67108864 bytes")
    assert peak_kb(stub.process.pid) < MEMORY_KB
