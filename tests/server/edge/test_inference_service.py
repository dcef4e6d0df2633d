"""Tests the Open Inference Protocol over gRPC, health and reflection."""

import asyncio
from typing import Any

import grpc
import numpy as np
import pytest
from google.protobuf import descriptor_pool, json_format, message_factory
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import (
    ProtoReflectionDescriptorDatabase,
)

from server.dependencies import DataPlane
from server.engines.routed import RoutedEngine
from server.protos.modules import load_protos
from server.settings import load_settings
from tests.server.support.eventually import PATIENCE_S
from tests.server.support.grpc_port import PREDICT, predict_request, serving, stub
from tests.server.support.light_upstream import LightUpstream
from tests.server.support.numpy_engine import NumpyEngine

SERVICE = "inference.GRPCInferenceService"


@pytest.fixture(scope="module")
def channel():
    with LightUpstream() as server, grpc.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        yield channel


def call(channel: grpc.Channel, method: str, **fields: Any) -> Any:
    request = getattr(load_protos(), f"{method}Request")(**fields)
    return getattr(stub(SERVICE, channel), method)(request, timeout=PATIENCE_S)


def infer(channel: grpc.Channel, *inputs: dict[str, Any], **fields: Any) -> Any:
    return call(channel, "ModelInfer", model_name="m", inputs=inputs, **fields)


def numbers(response: Any, index: int, dtype: str) -> list[Any]:
    shape = tuple(response.outputs[index].shape)
    return np.frombuffer(response.raw_output_contents[index], dtype).reshape(shape).tolist()


def test_what_is_served(channel):
    assert call(channel, "ServerLive").live
    assert call(channel, "ServerReady").ready
    assert "binary_tensor_data" in call(channel, "ServerMetadata").extensions
    assert call(channel, "ModelReady", name="m").ready
    assert not call(channel, "ModelReady", name="no").ready
    described = call(channel, "ModelMetadata", name="m", version="3")
    assert list(described.versions) == ["3"]
    assert (described.inputs[0].name, described.inputs[0].datatype) == ("x", "FP32")
    assert list(described.inputs[0].shape) == [-1]
    config = call(channel, "ModelConfig", name="m").config
    assert (config.name, config.max_batch_size, list(config.input[0].dims)) == ("m", 0, [-1])
    (listed,) = call(channel, "RepositoryIndex", ready=True).models
    assert (listed.name, listed.version, listed.state) == ("m", "3", "READY")


def test_tensors_travel_typed_and_raw(channel):
    typed = {"name": "x", "datatype": "FP32", "shape": [2], "contents": {"fp32_contents": [1, 2]}}
    response = infer(channel, typed, id="7")
    assert (response.model_name, response.model_version, response.id) == ("m", "3", "7")
    assert numbers(response, 0, "<f4") == [2.5, 3.0]
    raw = {"name": "x", "datatype": "FP32", "shape": [1, 2]}
    response = infer(channel, raw, raw_input_contents=[np.array([1, 2], "<f4").tobytes()])
    assert numbers(response, 0, "<f4") == [[2.5, 3.0]]


def test_strings_signatures_and_chosen_outputs(channel):
    response = infer(
        channel,
        {"name": "a", "datatype": "INT64", "shape": [1], "contents": {"int64_contents": [5]}},
        {"name": "s", "datatype": "BYTES", "shape": [1], "contents": {"bytes_contents": [b"\xff"]}},
        parameters={"signature_name": {"string_param": "both"}},
        outputs=[{"name": "s_bytes"}],
    )
    assert [output.name for output in response.outputs] == ["s_bytes"]
    assert response.outputs[0].datatype == "BYTES"
    assert list(response.raw_output_contents) == [b"\1\0\0\0\xff"]


def test_lookups(channel):
    response = infer(
        channel,
        {"name": "ids", "datatype": "INT64", "shape": [2], "contents": {"int64_contents": [7, 1]}},
        parameters={
            "signature_name": {"string_param": "de_lookup/user"},
            "missing": {"string_param": "null"},
        },
    )
    np.testing.assert_array_equal(numbers(response, 0, "<f4"), [[1, 2], [np.nan, np.nan]])
    assert numbers(response, 1, "?") == [True, False]


INVALID = "INVALID_ARGUMENT"
INT8 = {"name": "x", "datatype": "INT8", "shape": [1], "contents": {"int_contents": [300]}}


@pytest.mark.parametrize(
    ("fields", "code", "error"),
    [
        ({"model_version": "x"}, INVALID, "A version must be a number"),
        ({"model_name": "é" * 5000}, "NOT_FOUND", "Servable not found for request: Latest(é"),
        ({"inputs": [INT8]}, INVALID, "must hold values of INT8"),
        ({"inputs": [{**INT8, "datatype": "FP16"}]}, INVALID, "come as raw bytes"),
        ({"inputs": [{**INT8, "shape": [0, 2**62]}]}, INVALID, str(2**62)),
        ({"raw_input_contents": [b"", b""]}, INVALID, "2 for 1 inputs"),
        ({"raw_input_contents": [b"123"]}, INVALID, "must take 4 bytes"),
        ({"parameters": {"signature_name": {"bool_param": True}}}, INVALID, "documented types"),
        (
            {"inputs": [{**INT8, "parameters": {"shared_memory_region": {"string_param": "r"}}}]},
            "UNIMPLEMENTED",
            "must not have the parameter shared_memory_region",
        ),
    ],
)
def test_invalid_input_is_named_in_the_error(channel, fields, code, error):
    one = {"name": "x", "datatype": "FP32", "shape": [1], "contents": {"fp32_contents": [1]}}
    with pytest.raises(grpc.RpcError) as caught:
        call(channel, "ModelInfer", **{"model_name": "m", "inputs": [one], **fields})
    assert caught.value.code().name == code
    assert error in caught.value.details()


def test_a_client_that_knows_nothing_calls_by_reflection(channel):
    """Works like grpcurl: builds each message from the descriptors that the port sends."""
    pool = descriptor_pool.DescriptorPool(ProtoReflectionDescriptorDatabase(channel))

    def ask(service: str, method: str, asked: dict[str, Any]) -> dict[str, Any]:
        found = pool.FindServiceByName(service).methods_by_name[method]
        call = channel.unary_unary(
            f"/{service}/{method}",
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=message_factory.GetMessageClass(found.output_type).FromString,
        )
        request = message_factory.GetMessageClass(found.input_type)()
        answer = call(
            json_format.ParseDict(asked, request, descriptor_pool=pool), timeout=PATIENCE_S
        )
        return json_format.MessageToDict(answer, descriptor_pool=pool)

    for service in ProtoReflectionDescriptorDatabase(channel).get_services():
        for method in pool.FindServiceByName(service).methods:
            assert method.input_type.full_name
            assert method.output_type.full_name
    x = {"dtype": "DT_FLOAT", "tensorShape": {"dim": [{"size": 2}]}, "floatVal": [1, 2]}
    asked = {"modelSpec": {"name": "m"}, "inputs": {"x": x}}
    predicted = ask("tensorflow.serving.PredictionService", "Predict", asked)
    (output,) = predicted["outputs"].values()
    assert output["floatVal"] == [2.5, 3.0]
    x = {"name": "x", "datatype": "FP32", "shape": [1], "contents": {"fp32Contents": [1]}}
    inferred = ask(SERVICE, "ModelInfer", {"modelName": "m", "inputs": [x]})
    assert inferred["modelVersion"] == "3"
    assert ask("grpc.health.v1.Health", "Check", {}) == {"status": "SERVING"}


async def test_health_follows_the_gateway():
    engine = NumpyEngine()
    routed = RoutedEngine(engine)
    plane = DataPlane(routed, load_settings(model_dir="x"))
    status = health_pb2.HealthCheckResponse
    async with serving(plane) as channel:
        health = health_pb2_grpc.HealthStub(channel)

        async def check(name: str = "") -> Any:
            return (await health.Check(health_pb2.HealthCheckRequest(service=name))).status

        async def is_ready() -> bool:
            request = load_protos().ServerReadyRequest()
            ready = (await stub(SERVICE, channel).ServerReady(request)).ready
            assert await check() == (status.SERVING if ready else status.NOT_SERVING)
            return ready

        watch = health.Watch(health_pb2.HealthCheckRequest())
        assert (await watch.read()).status == status.SERVING
        assert await is_ready()
        assert await check(SERVICE) == status.SERVING
        engine.is_ready = False
        assert await check("tensorflow.serving.PredictionService") == status.NOT_SERVING
        assert (await watch.read()).status == status.NOT_SERVING
        engine.is_ready = True
        assert await is_ready()
        routed.set_draining(True)
        assert not await is_ready()
        routed.set_draining(False)
        assert await is_ready()
        plane.lifecycle.draining = True
        assert not await is_ready()
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await check("no.such.Service")
        assert caught.value.code() is grpc.StatusCode.NOT_FOUND


async def test_open_streams_hold_up_no_request():
    plane = DataPlane(NumpyEngine(), load_settings(model_dir="x", max_in_flight="8"))
    async with serving(plane) as channel:
        health = health_pb2_grpc.HealthStub(channel)
        reflection = channel.stream_stream(
            "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"
        )
        request, refusals = health_pb2.HealthCheckRequest(), set()

        async def opened(stream: Any) -> bool:
            try:
                return await stream.read() is not grpc.aio.EOF
            except grpc.aio.AioRpcError as error:
                refusals.add((error.code(), error.details()))
                return False

        watches = [health.Watch(request) for _ in range(12)]
        assert [await opened(each) for each in watches].count(True) == 4
        assert not await opened(reflection())
        ((code, details),) = refusals
        assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert details.startswith("At most 4 streams of health and reflection may be open")
        assert (await health.Check(request)).status == health_pb2.HealthCheckResponse.SERVING
        asked = predict_request("m", x=np.ones(1, np.float32)).SerializeToString()
        assert await channel.unary_unary(PREDICT)(asked)
        for each in watches:
            each.cancel()

        while not await opened(health.Watch(request)):
            await asyncio.sleep(0.01)
