"""The gRPC port enforces the same scopes and limits as REST, and counts a client over both.

A real TensorFlow Serving 2.20.0 answered refused requests with these codes.
"""

import asyncio
import gc
import tracemalloc
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from server.dependencies import DataPlane
from server.grpc.exchange import _handle
from server.keys import KeyRing
from server.protos.tensors import fill_typed
from server.settings import load_settings
from tests.server.support.asgi import PREDICT, make_app, send
from tests.server.support.eventually import eventually
from tests.server.support.gateway_process import write_key
from tests.server.support.grpc_port import (
    PROTOS,
    ask_grpc,
    multi_inference,
    named,
    predict_request,
    with_example,
)
from tests.server.support.numpy_engine import NumpyEngine

HUGE = 1 << 62
ONE = np.ones(1, np.float32)


def predict(signature: str = "", model: str = "m", **inputs: np.ndarray) -> Any:
    return predict_request(model, signature, **inputs or {"x": ONE})


def plane_of(keys: KeyRing | None = None, **flags: str) -> DataPlane:
    settings = load_settings(model_dir="x", **flags)
    return DataPlane(NumpyEngine(), settings, keys, clock=lambda: 0.0)


async def codes_of(*asked: Any, **options: Any) -> list[str]:
    return [code for code, _ in await ask_grpc(*asked, **options)]


def key_of(folder: Path, scope: str) -> tuple[list[tuple[str, str]], KeyRing]:
    key, file = write_key(folder, scope)
    return [("x-api-key", key)], KeyRing(file)


@pytest.mark.parametrize(
    ("scope", "codes"),
    [
        (None, ["UNAUTHENTICATED"] * 2),
        ("predict", ["OK", "PERMISSION_DENIED"]),
        # The lookup fails after the check of the scope, because there is no such table.
        ("lookup", ["PERMISSION_DENIED", "FAILED_PRECONDITION"]),
    ],
)
def test_rows_are_looked_up_with_the_scope_lookup(tmp_path, scope, codes):
    metadata, ring = key_of(tmp_path, scope or "predict")
    asked = predict(), predict("de_lookup/none")
    told = codes_of(plane_of(ring), *asked, metadata=metadata if scope else ())
    assert asyncio.run(told) == codes


async def test_a_client_is_counted_once_over_all_protocols(tmp_path):
    metadata, ring = key_of(tmp_path, "predict")
    plane = plane_of(ring, rate_per_second="1")  # a burst of two requests
    app = make_app(plane.engine, plane=plane)
    assert (await send(app, *PREDICT, dict(metadata))).status == 200
    codes = await codes_of(plane, predict(), predict(), metadata=metadata)
    assert codes == ["OK", "RESOURCE_EXHAUSTED"]


def test_an_answer_may_be_larger_than_the_largest_request():
    request = named(PROTOS.PredictRequest(), "m", "de_lookup/user")
    fill_typed(request.inputs["ids"], np.full(500, 7))  # takes a byte for each id
    plane = plane_of(max_decompressed_bytes="1000")
    [(code, answer)] = asyncio.run(ask_grpc(plane, request))
    assert code == "OK"
    assert len(answer) > 4000


@pytest.mark.parametrize(
    ("peer", "address"),
    [
        ("ipv4:10.0.0.5:4711", "10.0.0.5"),
        ("ipv6:%5B::1%5D:4711", "::1"),
        ("ipv6:[2001:db8::1]:4711", "2001:db8::1"),
    ],
)
def test_a_client_has_the_address_that_rest_counts(peer, address):
    async def told(request, _):
        return request.address.encode()

    context = SimpleNamespace(
        peer=lambda: peer, invocation_metadata=lambda: (), time_remaining=lambda: None
    )
    answer = _handle(plane_of(), "/s/m", ("m", None, told), b"", context)
    assert asyncio.run(answer) == address.encode()


def test_a_model_has_a_rate_limit_and_unknown_names_are_not_counted():
    asked = [predict()] * 3 + [predict(model="no")] * 3
    codes = asyncio.run(codes_of(plane_of(model_rate_per_second="1"), *asked))
    assert codes == ["OK", "OK", "RESOURCE_EXHAUSTED", *["NOT_FOUND"] * 3]


def test_an_output_that_is_asked_for_twice_is_given_once():
    request = predict()
    request.output_filter.extend(["y", "y"])
    [(code, answer)] = asyncio.run(ask_grpc(plane_of(), request))
    assert code == "OK"
    outputs = PROTOS.PredictResponse.FromString(answer).outputs
    assert list(outputs) == ["y"]
    assert list(outputs["y"].float_val) == [2.5]
    assert [dim.size for dim in outputs["y"].tensor_shape.dim] == [1]


LOOKUP = predict("de_lookup/user", ids=np.arange(3))
# The string repeats 99 times to fill its tensor.
REPEATED = predict("both", a=np.arange(3), s=np.array([b"x" * 60], object))
REPEATED.inputs["s"].tensor_shape.dim[0].size = 100
REPEATED.output_filter.append("a")


@pytest.mark.parametrize(
    ("limits", "request_", "message"),
    [
        ({"max_elements": "3"}, predict(x=np.ones(4, np.float32)), "at most 3 values"),
        ({}, predict(x=np.ones((1,) * 9, np.float32)), "at most 8 dimensions"),
        ({"max_elements": "3"}, predict(x=np.empty((0, 4), np.float32)), ""),
        ({"max_ids": "2"}, LOOKUP, "at most 2 ids"),
        ({"max_ids": "3"}, LOOKUP, ""),
        ({"max_decompressed_bytes": "5939"}, REPEATED, "at most 5939 bytes: send"),
        ({"max_decompressed_bytes": "5940"}, REPEATED, ""),
    ],
)
def test_the_limits_on_tensors_and_ids_hold(limits, request_, message):
    [(code, told)] = asyncio.run(ask_grpc(plane_of(**limits), request_))
    assert code == ("INVALID_ARGUMENT" if message else "OK")
    assert not message or message in told


async def test_refused_bodies_are_freed_without_a_collection():
    large = predict()
    large.inputs["x"].tensor_content = bytes(1 << 20)
    await codes_of(plane_of(), large)
    gc.collect()
    tracemalloc.start()
    gc.disable()
    try:
        codes = await codes_of(plane_of(), *[large] * 20)
        # gRPC's own threads let go of the last messages a little later.
        await eventually(lambda: tracemalloc.get_traced_memory()[0] < 4 << 20)
    finally:
        gc.enable()
        tracemalloc.stop()
    assert codes == ["INVALID_ARGUMENT"] * 20


def shaped(*shape: int, dtype: int = 0) -> Any:
    message = named(PROTOS.PredictRequest(), "m")
    proto = message.inputs["x"]
    proto.dtype = dtype
    for size in shape:
        proto.tensor_shape.dim.add().size = size
    return message


def versioned(**choice: Any) -> Any:
    message = predict()
    message.model_spec.MergeFrom(type(message.model_spec)(**choice))
    return message


def classify(signature: str) -> Any:
    return named(with_example(PROTOS.ClassificationRequest()), "m", signature)


MULTI = multi_inference("m", half_the_age="classify")
UNFIT = "Expected classification signature outputs to contain at least one of"


@pytest.mark.parametrize(
    ("method", "request_message", "code", "words"),
    [
        ("Predict", versioned(version={"value": 9}), "NOT_FOUND", "Specific(m, 9)"),
        ("Predict", versioned(version_label="no"), "INVALID_ARGUMENT", "servable version label"),
        ("Predict", predict("no"), "FAILED_PRECONDITION", 'key "no" not found'),
        ("Predict", predict(y=ONE), "INVALID_ARGUMENT", "expected to be in the set {x}"),
        ("Predict", PROTOS.PredictRequest(), "INVALID_ARGUMENT", "Missing ModelSpec"),
        ("Predict", shaped(), "UNIMPLEMENTED", "DT_INVALID"),
        ("Classify", classify("half_the_age"), "FAILED_PRECONDITION", UNFIT),
        ("MultiInference", MULTI, "FAILED_PRECONDITION", UNFIT),
        ("Predict", shaped(0, HUGE, dtype=1), "INVALID_ARGUMENT", str(HUGE)),
        ("Predict", shaped(0, 2**20, 2**20, 2**20, dtype=1), "INVALID_ARGUMENT", "1048576"),
    ],
)
def test_codes_of_refused_requests(method, request_message, code, words):
    path = f"/tensorflow.serving.PredictionService/{method}"
    [(told, details)] = asyncio.run(ask_grpc(plane_of(), request_message, path=path))
    assert (told, words in details) == (code, True), details


def test_an_answer_names_the_version_that_gave_it():
    """Another model server may answer, with a newer version than the lease's."""
    plane = plane_of()
    servable = plane.engine.servable

    def swap(inputs):
        servable.version = 4
        return {"scores": np.ones((inputs.size, 1), np.float32)}

    servable.functions = {"old": (servable.signatures["old"], swap)}
    path = "/tensorflow.serving.PredictionService/Classify"
    [(code, answer)] = asyncio.run(ask_grpc(plane, classify("old"), path=path))
    told = PROTOS.ClassificationResponse.FromString(answer)
    assert (code, told.model_spec.version.value) == ("OK", 4)
