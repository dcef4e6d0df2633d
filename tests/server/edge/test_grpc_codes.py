"""The codes of refused requests are those of a real TensorFlow Serving 2.20.0, as it was asked."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import pytest

from server.dataplane.plane import DataPlane
from server.edge.grpc.server import GrpcOptions, GrpcServer
from server.protos.modules import load_protos
from server.settings import load_settings
from tests.server.support.numpy_engine import NumpyEngine

PROTOS = load_protos()
HUGE = 1 << 62


def named(message: Any, signature: str) -> Any:
    message.model_spec.name = "m"
    message.model_spec.signature_name = signature
    return message


def on_examples(kind: Any, signature: str) -> Any:
    message = named(kind(), signature)
    feature = message.input.example_list.examples.add().features.feature["age"]
    feature.float_list.value.append(25)
    return message


def multi(signature: str, method: str) -> Any:
    message = PROTOS.inference.MultiInferenceRequest()
    feature = message.input.example_list.examples.add().features.feature["age"]
    feature.float_list.value.append(25)
    named(message.tasks.add(method_name=f"tensorflow/serving/{method}"), signature)
    return message


def predict(*shape: int, dtype: int = 0) -> Any:
    message = named(PROTOS.predict.PredictRequest(), "serving_default")
    proto = message.inputs["x"]
    proto.dtype = dtype
    for size in shape:
        proto.tensor_shape.dim.add().size = size
    return message


def infer(*shape: int) -> Any:
    message = PROTOS.open_inference.ModelInferRequest(model_name="m")
    message.inputs.add(name="x", datatype="FP32", shape=shape)
    return message


CLASSIFICATION = PROTOS.classification.ClassificationRequest
REGRESS = "half_the_age"
UNFIT = "Expected classification signature outputs to contain at least one of"


@pytest.mark.parametrize(
    ("service", "method", "request_message", "code", "words"),
    [
        ("p", "Predict", predict(), "UNIMPLEMENTED", "DT_INVALID"),
        ("p", "Classify", on_examples(CLASSIFICATION, REGRESS), "FAILED_PRECONDITION", UNFIT),
        ("p", "MultiInference", multi(REGRESS, "classify"), "FAILED_PRECONDITION", UNFIT),
        ("p", "Predict", predict(0, HUGE, dtype=1), "INVALID_ARGUMENT", str(HUGE)),
        ("p", "Predict", predict(0, 2**20, 2**20, 2**20, dtype=1), "INVALID_ARGUMENT", "1048576"),
        ("i", "ModelInfer", infer(0, HUGE), "INVALID_ARGUMENT", str(HUGE)),
    ],
)
def test_codes_of_refused_requests(service, method, request_message, code, words):
    async def ask():
        plane = DataPlane(NumpyEngine(), load_settings(model_dir="x"))
        server = GrpcServer(plane, GrpcOptions("127.0.0.1", 0, max_message_bytes=64 << 20))
        await server.start()
        name = "inference.GRPCInferenceService"
        if service == "p":
            name = PROTOS.prediction_service.name
        async with grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel:
            call = channel.unary_unary(f"/{name}/{method}")
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await call(request_message.SerializeToString())
        await server.stop(0)
        return caught.value.code().name, caught.value.details()

    told, details = asyncio.run(ask())
    assert (told, words in details) == (code, True), details
