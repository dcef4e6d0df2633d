"""The gRPC port. It starts and ends with the application's event loop."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from typing import Any

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection, reflection_pb2, reflection_pb2_grpc

from ..dependencies import DataPlane
from ..errors import ServingError, StartError
from ..limits import Shares
from ..protos.inference import SERVICE
from ..protos.modules import MODEL_SERVICE, PREDICTION_SERVICE, load_protos
from .inference_service import InferenceService
from .prediction_service import TensorFlowServing

_SERVICES = (PREDICTION_SERVICE, MODEL_SERVICE, SERVICE)
_LOOK_SECONDS = 0.5


class GrpcServer:
    """Serves TensorFlow Serving's and the Open Inference Protocol's services over gRPC."""

    def __init__(self, plane: DataPlane, port: int, *, share_port: bool = False) -> None:
        """Creates the server.

        Args:
            plane: Answers the requests. Its settings have the address, limits and TLS. The engine's
                owner starts and closes the engine.
            port: Port to listen on; 0 for any free one.
            share_port: True if other processes listen on the same port.
        """
        self._plane = plane
        self.port = port
        self._share_port = share_port
        self._server: Any = None

    async def start(self) -> None:
        """Starts to listen.

        Raises:
            StartError: The address is not available.
        """
        plane, settings = self._plane, self._plane.settings
        interceptors = None
        if settings.tracing:
            from ..observability.tracing import grpc_interceptor

            interceptors = [grpc_interceptor()]
        server = grpc.aio.server(
            interceptors=interceptors,
            options=[
                ("grpc.max_receive_message_length", settings.max_decompressed_bytes),
                ("grpc.max_send_message_length", -1),  # the limit is of requests, not of answers
                ("grpc.so_reuseport", int(self._share_port)),
            ],
            # The data plane refuses requests beyond `max_in_flight`. Streams take at most half of
            # the rest, so that health checks are answered too.
            maximum_concurrent_rpcs=2 * settings.max_in_flight,
        )
        streams = Shares(
            max(1, settings.max_in_flight // 2), "streams of health and reflection may be open"
        )
        server.add_generic_rpc_handlers(
            (*TensorFlowServing(plane).handlers, InferenceService(plane).handler)
        )
        self._health = _Health(plane, streams)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, server)
        # Clients such as grpcurl discover services and messages.
        pool = load_protos().pool
        for file in (health_pb2.DESCRIPTOR, reflection_pb2.DESCRIPTOR):
            pool.AddSerializedFile(file.serialized_pb)
        names = (*_SERVICES, health.SERVICE_NAME, reflection.SERVICE_NAME)
        reflection_pb2_grpc.add_ServerReflectionServicer_to_server(
            _Reflection(names, pool, streams), server
        )
        host = f"[{settings.host}]" if ":" in settings.host else settings.host
        address, asked = f"{host}:{self.port}", self.port
        try:
            if settings.tls_cert is None or settings.tls_key is None:
                self.port = server.add_insecure_port(address)
            else:
                ca = settings.tls_client_ca and settings.tls_client_ca.read_bytes()
                credentials = grpc.ssl_server_credentials(
                    [(settings.tls_key.read_bytes(), settings.tls_cert.read_bytes())],
                    ca,
                    require_client_auth=ca is not None,
                )
                self.port = server.add_secure_port(address, credentials)
        except RuntimeError:
            self.port = 0
        if not self.port:
            raise StartError(
                f"Port {asked} of {settings.host} must be free to listen on. Stop what uses "
                "it, or choose another with --grpc-port."
            )
        self._server = server
        await server.start()

    async def stop(self, seconds: float) -> None:
        """Refuses new requests, and gives running ones some time."""
        if self._server is not None:
            self._health.ends = True
            await self._server.stop(seconds)


class _Health(health_pb2_grpc.HealthServicer):
    """gRPC's health service: reports for every service whether the gateway takes traffic.

    Like `/readyz` it needs no key. The servicer of `grpc_health` writes while it holds the lock of
    all health checks, so a client of `Watch` that reads nothing would stop them.
    """

    def __init__(self, plane: DataPlane, streams: Shares) -> None:
        self._plane = plane
        self._streams = streams
        #: True to end each `Watch` once it has sent the last status.
        self.ends = False

    def _status(self, service: str) -> Any:
        """Returns the current status of a service, or SERVICE_UNKNOWN."""
        statuses = health_pb2.HealthCheckResponse
        if service not in ("", *_SERVICES):
            return statuses.SERVICE_UNKNOWN
        return statuses.NOT_SERVING if self.ends or not self._plane.ready() else statuses.SERVING

    async def Check(self, request: Any, context: Any) -> Any:  # noqa: N802
        """Reports the current status, which `Watch` may report a little later."""
        status = self._status(request.service)
        if status == health_pb2.HealthCheckResponse.SERVICE_UNKNOWN:
            await context.abort(grpc.StatusCode.NOT_FOUND)
        return health_pb2.HealthCheckResponse(status=status)

    async def Watch(self, request: Any, context: Any) -> None:  # noqa: N802
        """Reports the status and its changes until the client goes or the server ends."""
        last = None
        async with _counted(self._streams, context):
            while True:
                ends, status = self.ends, self._status(request.service)
                if status != last:
                    last = status
                    await context.write(health_pb2.HealthCheckResponse(status=status))
                if ends:
                    return
                await asyncio.sleep(_LOOK_SECONDS)


class _Reflection(reflection.aio.ReflectionServicer):
    """gRPC's reflection service. Like the health service it needs no key."""

    def __init__(self, names: Sequence[str], pool: Any, streams: Shares) -> None:
        super().__init__(names, pool)
        self._streams = streams

    async def ServerReflectionInfo(self, requests: Any, context: Any) -> AsyncIterator[Any]:  # noqa: N802
        """Describes services and messages until the client goes."""
        async with _counted(self._streams, context):
            async for answer in super().ServerReflectionInfo(requests, context):
                yield answer


@contextlib.asynccontextmanager
async def _counted(streams: Shares, context: Any) -> AsyncIterator[None]:
    """Counts a stream while it is open. Refuses it if too many are."""
    try:
        streams.take("")
    except ServingError as error:
        await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, error.message)
    try:
        yield
    finally:
        streams.give("")
