"""gRPC's server reflection: clients such as grpcurl discover services and messages with it."""

from collections.abc import Sequence
from typing import Any

from server.protos.modules import load_protos


def add_reflection(server: Any, services: Sequence[str]) -> None:
    """Adds `grpc.reflection.v1alpha.ServerReflection` to a server that has not started.

    Args:
        server: A `grpc.aio.Server`.
        services: The full names of its services. This adds health and reflection.
    """
    from grpc_health.v1 import health, health_pb2
    from grpc_reflection.v1alpha import reflection, reflection_pb2

    pool = load_protos().pool
    for file in (health_pb2.DESCRIPTOR, reflection_pb2.DESCRIPTOR):
        pool.AddSerializedFile(file.serialized_pb)
    names = [*services, health.SERVICE_NAME, reflection.SERVICE_NAME]
    reflection.enable_server_reflection(names, server, pool)
