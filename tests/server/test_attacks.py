"""Expensive requests: another process does their work, so that they delay no other client."""

import gzip
import json
import os
import signal
from collections.abc import Callable
from typing import Any

import grpc
import numpy as np
import pytest

from server.wire.paths import RAW
from tests.server.support.eventually import wait_until
from tests.server.support.gateway_process import GatewayProcess, children_of, has_ended
from tests.server.support.grpc_port import PROTOS, named
from tests.server.support.light_upstream import LightUpstream, front

#: The answer to a request if its codec process ends before the work is done.
LOST = "The request needs too much memory to be read"
#: The flags of the gateway `stub`.
FLAGS = ("--drain-seconds", "0", "--request-seconds", "3600")


@pytest.fixture(autouse=True)
def _others_are_served(stub: GatewayProcess):
    yield
    assert stub.ask("POST", "/v1/models/m:predict", {"instances": [1.0]}).status == 200


def check_work_is_done_apart(gateway: GatewayProcess, attack: Callable[[], Any]) -> tuple[Any, Any]:
    """Checks that another process does an attack's work, so that it delays nobody.

    Returns the attack's result, and its result after that process was killed: the request must be
    refused with `LOST`, because nothing else does the work.
    """
    result = attack()
    children = children_of(gateway.process.pid)
    assert children, "the gateway itself did the work"
    for child in children:
        os.kill(child, signal.SIGKILL)
    wait_until(lambda: all(map(has_ended, children)))
    return result, attack()


def check_post_is_done_apart(
    gateway: GatewayProcess, path: str, body: bytes, headers: dict[str, str], said: str = ""
) -> None:
    reply, lost = check_work_is_done_apart(
        gateway, lambda: gateway.ask("POST", path, body, headers)
    )
    assert reply.status == (400 if said else 200), reply
    assert not said or said in reply.error
    assert lost.error.startswith(LOST), lost


def many(text: bytes, count: int) -> bytes:
    return b",".join([text] * count)


def values(text: bytes, count: int) -> bytes:
    return b'{"instances":[' + many(text, count) + b"]}"


def examples(text: bytes, count: int) -> bytes:
    return b'{"signature_name":"old","examples":[' + many(text, count) + b"]}"


MODEL = "/v1/models/m"
LOOKUP = f"{MODEL}:lookup"
GZIP = {"Content-Encoding": "gzip"}
MOST = "at most 100000 examples"
LIST = b'{"table":"user","ids":['
EMPTY_BAGS = LIST + many(b"[]", 300_000) + b"]}"
INFER = (
    b'{"inputs":[{"name":"x","datatype":"FP32","shape":[200000],"data":['
    + many(b"1.5", 200_000)
    + b']}],"parameters":{"binary_data_output":true}}'
)
INFER_LENGTH = {"Inference-Header-Content-Length": str(len(INFER))}
# The path, the body, its headers, and what it is answered.
BODIES = {
    "examples in gzip": (f"{MODEL}:classify", examples(b"{}", 700_000), GZIP, MOST),
    "examples": (f"{MODEL}:classify", examples(b'{"age":1}', 700_000), {}, MOST),
    "infinities in gzip": (f"{MODEL}:predict", values(b"-Inf", 200_000), GZIP, ""),
    "numbers": (f"{MODEL}:predict", values(b"1.5", 200_000), {}, ""),
    "one long id": (LOOKUP, LIST + b'"' + b"7" * 600_000 + b'"]}', {}, "An id must be"),
    "no JSON": (LOOKUP, LIST + b"7," * 300_000, {}, "JSON Parse error"),
    "empty bags in gzip": (LOOKUP, EMPTY_BAGS, GZIP, "at most 100000 bags"),
    "admitted examples": (f"{MODEL}:classify", examples(b'{"age":1}', 20_000), {}, ""),
    "the index": ("/v2/repository/index", b'{"a":[' + many(b"[]", 300_000) + b"]}", {}, ""),
    "JSON whose length a header tells": ("/v2/models/m/infer", INFER, INFER_LENGTH, ""),
}


@pytest.mark.parametrize("name", BODIES)
def test_an_expensive_body_is_read_apart(stub, name):
    path, body, headers, said = BODIES[name]
    sent = gzip.compress(body, 1) if headers is GZIP else body
    check_post_is_done_apart(stub, path, sent, headers, said)


LOOKUPS = {
    "rows in JSON": ("", {}),
    "rows in base64": (',"format":"b64"', {}),
    "bags": (',"combiner":"mean"', {}),
    "empty bags": (',"combiner":"mean"', {}),
    "empty bags in bytes": (',"combiner":"sum"', {"Accept": RAW}),
    "bags in bytes": (',"combiner":"mean","missing":"null"', {"Accept": RAW}),
}


@pytest.mark.parametrize("name", LOOKUPS)
def test_an_expensive_answer_is_written_apart(stub, name):
    options, headers = LOOKUPS[name]
    if "empty" in name:
        ids = json.dumps([[]] * 50_000)
    else:
        ids = json.dumps([[7] * 50_000] if "bags" in name else [7] * 50_000)
    body = f'{{"table":"wide","ids":{ids}{options}}}'.encode()
    check_post_is_done_apart(stub, LOOKUP, body, headers)


@pytest.mark.parametrize(
    ("shape", "options"),
    [
        ((1, 50_000), '"missing":"null"'),
        ((1, 50_000), '"combiner":"mean","missing":"null"'),
        ((50_000, 0), '"combiner":"sum"'),
    ],
)
def test_the_rows_of_an_expensive_inference_are_combined_apart(stub, shape, options):
    ids = np.full(shape, 7, "<i8").tobytes()
    text = (
        f'{{"inputs":[{{"name":"ids","datatype":"INT64","shape":{list(shape)},"parameters":'
        f'{{"binary_data_size":{len(ids)}}}}}],'
        f'"parameters":{{"signature_name":"de_lookup/wide","binary_data_output":true,{options}}}}}'
    ).encode()
    headers = {"Inference-Header-Content-Length": str(len(text))}
    check_post_is_done_apart(stub, "/v2/models/m/infer", text + ids, headers)


def test_the_work_of_a_request_ends_at_its_deadline(stub):
    body = values(b"1.5", 200_000)
    assert stub.ask("POST", f"{MODEL}:predict", body).status == 200
    for child in children_of(stub.process.pid):
        os.kill(child, signal.SIGSTOP)  # now the work never ends by itself
    headers = {"X-Request-Timeout-Ms": "200"}
    assert stub.ask("POST", f"{MODEL}:predict", body, headers).status == 504
    wait_until(lambda: not children_of(stub.process.pid))


def many_examples() -> bytes:
    """Returns a ClassificationRequest with as many examples as a request may hold."""
    request = named(PROTOS.ClassificationRequest(), "m", "old")
    example = PROTOS.Example()
    for index in range(10):
        example.features.feature[f"feature {index}"].int64_list.value.append(index)
    example.features.feature["age"].int64_list.value.append(7)
    request.input.example_list.examples.extend([example] * 100_000)
    return bytes(request.SerializeToString())


@pytest.mark.slow  # A second gateway and a model server only for this test.
def test_many_examples_on_their_way_to_a_model_server_are_read_apart(tmp_path):
    body, most = many_examples(), ("grpc.max_receive_message_length", 64 << 20)
    flags = ("--grpc-port", "0", "--request-seconds", "3600")
    with LightUpstream() as upstream, front(tmp_path, upstream, flags=flags) as gateway:
        port = gateway.port_of("gRPC")
        gateway.wait_ready()

        def attack() -> int | str:
            with grpc.insecure_channel(f"127.0.0.1:{port}", options=[most]) as channel:
                classify = channel.unary_unary("/tensorflow.serving.PredictionService/Classify")
                try:
                    answer = classify(body)
                except grpc.RpcError as error:
                    return str(error.details())
            response = PROTOS.ClassificationResponse.FromString(answer)
            return len(response.result.classifications)

        result, lost = check_work_is_done_apart(gateway, attack)
        assert result == 100_000
        assert str(lost).startswith(LOST)


def test_a_large_context_of_many_examples_is_refused(stub):
    context = b'{"text":"' + b"a" * 1_000_000 + b'"}'
    body = examples(b'{"age":1}', 10_000)[:-1] + b',"context":' + context + b"}"
    reply = stub.ask("POST", f"{MODEL}:classify", body)
    assert reply.status == 400
    assert reply.error.startswith("The context must take at most 67108864 bytes")
