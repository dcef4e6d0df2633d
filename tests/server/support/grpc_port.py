"""A gRPC port in this process, a client that sends messages to it, and messages."""

import contextlib
import types
from collections.abc import AsyncIterator, Iterable
from typing import Any

import grpc
import numpy as np
from google.protobuf import message_factory

from server.dependencies import DataPlane
from server.grpc.server import GrpcServer
from server.protos.modules import load_protos
from server.protos.tensors import fill_proto

PROTOS = load_protos()
PREDICT = "/tensorflow.serving.PredictionService/Predict"


def methods_of(service: str) -> dict[str, tuple[Any, Any]]:
    """Returns the classes of request and response of each method of a service."""
    methods = PROTOS.pool.FindServiceByName(service).methods_by_name
    message = message_factory.GetMessageClass
    return {
        name: (message(each.input_type), message(each.output_type))
        for name, each in methods.items()
    }


def stub(service: str, channel: Any) -> Any:
    """Returns an object with one callable per method of a service, for clients on `channel`."""
    return types.SimpleNamespace(
        **{
            method: channel.unary_unary(
                f"/{service}/{method}",
                request_serializer=request.SerializeToString,
                response_deserializer=response.FromString,
            )
            for method, (request, response) in methods_of(service).items()
        }
    )


def on_the_wire(files: Any) -> dict[tuple[Any, ...], Any]:
    """Returns what determines the encoding: fields by number, and methods by service."""
    found: dict[tuple[Any, ...], Any] = {}

    def add(prefix: str, message: Any) -> None:
        name = f"{prefix}.{message.name}"
        for field in message.field:
            found[name, field.number] = (field.name, field.type, field.label, field.type_name)
        for nested in message.nested_type:
            add(name, nested)

    for file in files.file:
        for message in file.message_type:
            add(file.package, message)
        for service in file.service:
            for method in service.method:
                kind = (method.input_type, method.output_type)
                found[file.package, service.name, method.name] = kind
    return found


def named(message: Any, model: str, signature: str = "") -> Any:
    message.model_spec.name, message.model_spec.signature_name = model, signature
    return message


def predict_request(model: str, signature: str = "", **inputs: np.ndarray) -> Any:
    request = named(PROTOS.PredictRequest(), model, signature)
    for name, array in inputs.items():
        fill_proto(request.inputs[name], array)
    return request


def with_example(message: Any) -> Any:
    """Adds an example of the age 25 to a message."""
    feature = message.input.example_list.examples.add().features.feature["age"]
    feature.float_list.value.append(25)
    return message


def multi_inference(model: str, **methods: str) -> Any:
    """Returns a MultiInferenceRequest of one example, with a task for each signature."""
    message = with_example(PROTOS.MultiInferenceRequest())
    for signature, method in methods.items():
        named(message.tasks.add(method_name=f"tensorflow/serving/{method}"), model, signature)
    return message


@contextlib.asynccontextmanager
async def serving(plane: DataPlane) -> AsyncIterator[grpc.aio.Channel]:
    """Serves a plane, and yields a channel to it."""
    server = GrpcServer(plane, 0)
    await server.start()
    try:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel:
            yield channel
    finally:
        await server.stop(0)
        await plane.codec.close()


async def ask_grpc(
    plane: DataPlane,
    *requests: Any,
    path: str = PREDICT,
    metadata: Iterable[tuple[str, str]] = (),
) -> list[tuple[str, Any]]:
    """Sends requests. Returns for each OK and the answer's bytes, or its code and details."""
    told: list[tuple[str, Any]] = []
    async with serving(plane) as channel:
        call = channel.unary_unary(path)
        for request in requests:
            try:
                answer = await call(request.SerializeToString(), metadata=tuple(metadata))
                told.append(("OK", answer))
            except grpc.aio.AioRpcError as error:
                told.append((error.code().name, error.details()))
    return told
