"""A gRPC port in this process, and a client that sends messages to it."""

from __future__ import annotations

import contextlib
import types
from collections.abc import AsyncIterator
from typing import Any

import grpc

from server.dependencies import DataPlane
from server.grpc.server import GrpcServer
from server.protos.modules import Service
from server.settings import load_settings


def stub(service: Service, channel: Any) -> Any:
    """Returns an object with one callable per method of a service, for clients on `channel`."""
    return types.SimpleNamespace(
        **{
            method: channel.unary_unary(
                f"/{service.name}/{method}",
                request_serializer=request.SerializeToString,
                response_deserializer=response.FromString,
            )
            for method, (request, response) in service.methods.items()
        }
    )


PREDICT = "/tensorflow.serving.PredictionService/Predict"


@contextlib.asynccontextmanager
async def serving(plane: DataPlane, **options: Any) -> AsyncIterator[grpc.aio.Channel]:
    """Serves a plane, and yields a channel to it."""
    server = GrpcServer(plane, load_settings(model_dir="unused"), 0, **options)
    await server.start()
    try:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel:
            yield channel
    finally:
        await server.stop(0)
        await plane.codec.close()


async def ask_grpc(
    plane: DataPlane, *requests: Any, path: str = PREDICT, key: str = ""
) -> list[tuple[str, Any]]:
    """Sends requests. Returns for each OK and the answer's bytes, or its code and details."""
    told: list[tuple[str, Any]] = []
    async with serving(plane) as channel:
        call = channel.unary_unary(path)
        for request in requests:
            try:
                metadata = (("x-api-key", key),) if key else ()
                answer = await call(request.SerializeToString(), metadata=metadata)
                told.append(("OK", answer))
            except grpc.aio.AioRpcError as error:
                told.append((error.code().name, error.details()))
    return told
