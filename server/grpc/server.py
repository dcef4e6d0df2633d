"""The gRPC port. It starts and ends with the application's event loop."""

import dataclasses
from pathlib import Path
from typing import Any

from ..dataplane.lifecycle import Lifecycle
from ..dataplane.plane import DataPlane
from ..errors import StartError
from ..observability.accounts import Accounts
from ..observability.metrics import Metrics
from ..protos.modules import load_protos
from .exchange import GrpcEdge
from .health import Health
from .inference_service import InferenceService
from .model_service import ModelService
from .prediction_service import PredictionService

_SERVICES = (
    "tensorflow.serving.PredictionService",
    "tensorflow.serving.ModelService",
    "inference.GRPCInferenceService",
)


@dataclasses.dataclass(frozen=True)
class GrpcOptions:
    """Options of the gRPC port.

    Attributes:
        host: Address to listen on.
        port: Port to listen on; 0 for any free one.
        max_message_bytes: Largest message, in either direction.
        max_in_flight: Requests that run at once.
        share_port: True if other processes listen on the same port.
        certificate: Certificate chain and private key for TLS; None for plain text.
        client_ca: CA certificates for clients' certificates; None if clients need none.
    """

    host: str
    port: int
    max_message_bytes: int
    max_in_flight: int = 1024
    share_port: bool = False
    certificate: tuple[Path, Path] | None = None
    client_ca: Path | None = None


class GrpcServer:
    """Serves TensorFlow Serving's and the Open Inference Protocol's services over gRPC."""

    def __init__(
        self,
        plane: DataPlane,
        options: GrpcOptions,
        accounts: Accounts | None = None,
        lifecycle: Lifecycle | None = None,
    ) -> None:
        """Creates the server.

        Args:
            plane: Answers the requests. The engine's owner starts and closes the engine.
            options: The options of the port.
            accounts: Counts and logs the requests; created by default.
            lifecycle: Says whether the gateway takes traffic; by default it always does.
        """
        self._plane = plane
        self._accounts = accounts or Accounts(Metrics(), None, plane.engine.model_names)
        self._options = options
        self._lifecycle = lifecycle or Lifecycle()
        self._health: Health | None = None
        self._server: Any = None
        self.port = options.port

    async def start(self) -> None:
        """Starts to listen.

        Raises:
            StartError: The address is not available.
        """
        import grpc

        options = self._options
        self._server = grpc.aio.server(
            options=[
                ("grpc.max_receive_message_length", options.max_message_bytes),
                ("grpc.max_send_message_length", options.max_message_bytes),
                ("grpc.so_reuseport", int(options.share_port)),
            ],
            maximum_concurrent_rpcs=options.max_in_flight,
        )
        edge = GrpcEdge(self._plane, self._accounts)
        self._server.add_generic_rpc_handlers(
            (
                PredictionService(edge).handler,
                ModelService(edge).handler,
                InferenceService(edge, self._lifecycle).handler,
            )
        )
        self._health = Health(self._server, _SERVICES, self._serves)
        self._reflect()
        host = f"[{options.host}]" if ":" in options.host else options.host
        address = f"{host}:{options.port}"
        try:
            if options.certificate is None:
                self.port = self._server.add_insecure_port(address)
            else:
                self.port = self._server.add_secure_port(address, self._credentials())
        except RuntimeError:
            self.port = 0
        if not self.port:
            raise StartError(
                f"Port {options.port} of {options.host} must be free to listen on. Stop what uses "
                "it, or choose another with --grpc-port."
            )
        await self._server.start()

    async def stop(self, seconds: float) -> None:
        """Refuses new requests, and gives running ones some time."""
        if self._health is not None:
            await self._health.stop()
        if self._server is not None:
            await self._server.stop(seconds)

    def _reflect(self) -> None:
        """Adds server reflection: clients such as grpcurl discover services and messages."""
        from grpc_health.v1 import health, health_pb2
        from grpc_reflection.v1alpha import reflection, reflection_pb2

        pool = load_protos().pool
        for file in (health_pb2.DESCRIPTOR, reflection_pb2.DESCRIPTOR):
            pool.AddSerializedFile(file.serialized_pb)
        names = (*_SERVICES, health.SERVICE_NAME, reflection.SERVICE_NAME)
        reflection.enable_server_reflection(names, self._server, pool)

    def _serves(self) -> bool:
        return self._plane.engine.ready() and not self._lifecycle.draining

    def _credentials(self) -> Any:
        import grpc

        assert self._options.certificate is not None
        chain, key = (path.read_bytes() for path in self._options.certificate)
        ca = self._options.client_ca.read_bytes() if self._options.client_ca else None
        return grpc.ssl_server_credentials([(key, chain)], ca, require_client_auth=ca is not None)
