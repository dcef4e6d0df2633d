"""The gRPC port enforces the same key scopes and rate limits as REST.

One limit counts a client's requests over both protocols.
"""

from __future__ import annotations

import asyncio
import gc
import tracemalloc
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest

from server.app import create_app
from server.dataplane.keys import KeyRing
from server.dataplane.plane import DataPlane
from server.edge.grpc.server import GrpcOptions, GrpcServer
from server.protos.modules import load_protos
from server.protos.tensors import fill_proto
from server.settings import load_settings
from server.tensors import dtype_of_name
from tests.server.support.asgi import send
from tests.server.support.eventually import eventually
from tests.server.support.gateway_process import make_key
from tests.server.support.numpy_engine import NumpyEngine

PROTOS = load_protos()


def predict_request(signature: str = "", model: str = "m") -> Any:
    request = PROTOS.predict.PredictRequest()
    request.model_spec.name = model
    request.model_spec.signature_name = signature
    fill_proto(request.inputs["x"], np.array([1.0], np.float32), dtype_of_name("float"))
    return request


async def codes_of(server: GrpcServer, *requests: Any, key: str = "") -> list[str]:
    """Sends requests one after the other, and returns the status code of each answer."""
    codes = []
    metadata = (("x-api-key", key),) if key else ()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        stub = PROTOS.prediction_service.stub(channel)
        for request in requests:
            try:
                await stub.Predict(request, metadata=metadata)
                codes.append("OK")
            except grpc.aio.AioRpcError as error:
                codes.append(error.code().name)
    return codes


def served(plane: DataPlane) -> GrpcServer:
    return GrpcServer(plane, GrpcOptions("127.0.0.1", 0, max_message_bytes=64 << 20))


def plane_of(keys: KeyRing | None = None, **flags: str) -> DataPlane:
    settings = load_settings(model_dir="x", **flags)
    return DataPlane(NumpyEngine(), settings, keys, clock=lambda: 0.0)


def key_of(folder: Path, scope: str) -> tuple[str, KeyRing]:
    key, line = make_key("tests", scope)
    file = folder / "keys.yaml"
    file.write_text(f"keys:\n{line}\n")
    return key, KeyRing(file)


@pytest.mark.parametrize(
    ("scope", "predict", "lookup"),
    [
        ("predict", "OK", "PERMISSION_DENIED"),
        # The lookup fails after the check of the scope, because there is no such table.
        ("lookup", "PERMISSION_DENIED", "FAILED_PRECONDITION"),
    ],
)
def test_rows_are_looked_up_with_the_scope_lookup(tmp_path, scope, predict, lookup):
    key, ring = key_of(tmp_path, scope)

    async def run():
        server = served(plane_of(ring))
        await server.start()
        try:
            asked = predict_request(), predict_request("de_lookup/none")
            return await codes_of(server, *asked, key=key)
        finally:
            await server.stop(0)

    assert asyncio.run(run()) == [predict, lookup]


def test_a_client_is_counted_once_over_all_protocols(tmp_path):
    key, ring = key_of(tmp_path, "predict")
    plane = plane_of(ring, rate_per_second="1")  # a burst of two requests
    app = create_app(load_settings(model_dir="x"), plane.engine, plane=plane)

    async def run():
        server = served(plane)
        await server.start()
        try:
            rest = await send(
                app,
                "POST",
                "/v1/models/m:predict",
                b'{"instances": [1.0]}',
                headers={"x-api-key": key},
            )
            asked = predict_request(), predict_request()
            return rest.status, await codes_of(server, *asked, key=key)
        finally:
            await server.stop(0)

    assert asyncio.run(run()) == (200, ["OK", "RESOURCE_EXHAUSTED"])


def test_a_model_has_a_rate_limit_and_unknown_names_are_not_counted():

    async def run():
        server = served(plane_of(model_rate_per_second="1"))
        await server.start()
        try:
            known = await codes_of(server, *[predict_request()] * 3)
            return known, await codes_of(server, *[predict_request(model="no")] * 3)
        finally:
            await server.stop(0)

    known, unknown = asyncio.run(run())
    assert known == ["OK", "OK", "RESOURCE_EXHAUSTED"]
    assert unknown == ["NOT_FOUND"] * 3


def test_an_output_that_is_asked_for_twice_is_given_once():
    request = predict_request()
    request.output_filter.extend(["y", "y"])

    async def run():
        server = served(plane_of())
        await server.start()
        try:
            async with grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel:
                return await PROTOS.prediction_service.stub(channel).Predict(request)
        finally:
            await server.stop(0)

    outputs = asyncio.run(run()).outputs
    assert list(outputs) == ["y"]
    assert list(outputs["y"].float_val) == [2.5]
    assert [dim.size for dim in outputs["y"].tensor_shape.dim] == [1]


@pytest.mark.parametrize(
    ("limits", "inputs", "message"),
    [
        ({"max_elements": "3"}, np.ones(4, np.float32), "at most 3 values"),
        ({}, np.ones((1,) * 9, np.float32), "at most 8 dimensions"),
        ({"max_elements": "3"}, np.empty((0, 4), np.float32), "OK"),
    ],
)
def test_the_limits_on_tensors_hold(limits, inputs, message):
    request = PROTOS.predict.PredictRequest()
    request.model_spec.name = "m"
    fill_proto(request.inputs["x"], inputs, dtype_of_name("float"))
    assert message in asyncio.run(answer_to(plane_of(**limits), request))


def test_the_limit_on_ids_holds():
    request = PROTOS.predict.PredictRequest()
    request.model_spec.name, request.model_spec.signature_name = "m", "de_lookup/user"
    fill_proto(request.inputs["ids"], np.arange(3), dtype_of_name("int64"))
    assert "at most 2 ids" in asyncio.run(answer_to(plane_of(max_ids="2"), request))
    assert asyncio.run(answer_to(plane_of(max_ids="3"), request)) == "OK"


async def answer_to(plane: DataPlane, request: Any) -> str:
    """Returns OK, or the message of the error."""
    server = served(plane)
    await server.start()
    try:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel:
            await PROTOS.prediction_service.stub(channel).Predict(request)
            return "OK"
    except grpc.aio.AioRpcError as error:
        return str(error.details())
    finally:
        await server.stop(0)
        await plane.close()


def test_refused_bodies_are_freed_without_a_collection():
    large = predict_request()
    large.inputs["x"].tensor_content = bytes(1 << 20)

    async def run():
        server = served(plane_of())
        await server.start()
        try:
            await codes_of(server, large)
            gc.collect()
            tracemalloc.start()
            gc.disable()
            codes = await codes_of(server, *[large] * 20)
            # gRPC's own threads let go of the last messages a little later.
            await eventually(lambda: tracemalloc.get_traced_memory()[0] < 4 << 20)
            return codes
        finally:
            gc.enable()
            tracemalloc.stop()
            await server.stop(0)

    assert asyncio.run(run()) == ["INVALID_ARGUMENT"] * 20
