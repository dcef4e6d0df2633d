"""gRPC's health service: reports for every service whether the gateway takes traffic."""

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from typing import Any

_LOOK_SECONDS = 0.5


class Health:
    """`grpc.health.v1.Health` on a server. Like `/readyz` it needs no key."""

    def __init__(self, server: Any, services: Sequence[str], serves: Callable[[], bool]) -> None:
        """Adds the service to a server that has not started.

        Args:
            server: A `grpc.aio.Server`.
            services: The names that clients may check; the empty name stands for the whole server.
            serves: Returns whether the gateway takes traffic now.
        """
        from grpc_health.v1 import health_pb2, health_pb2_grpc
        from grpc_health.v1.health import aio

        status = health_pb2.HealthCheckResponse

        class Servicer(aio.HealthServicer):
            async def look(self) -> None:
                """Sets the status of all services to the current one."""
                for name in ("", *services):
                    await self.set(name, status.SERVING if serves() else status.NOT_SERVING)

            async def Check(self, request: Any, context: Any) -> Any:  # noqa: N802
                await self.look()
                return await super().Check(request, context)

        self._servicer = Servicer()
        health_pb2_grpc.add_HealthServicer_to_server(self._servicer, server)
        self._task = asyncio.get_running_loop().create_task(self._watch())

    async def _watch(self) -> None:
        """Sends changes to the clients of `Watch`."""
        while True:
            await self._servicer.look()
            await asyncio.sleep(_LOOK_SECONDS)

    async def stop(self) -> None:
        """Reports all services as not serving, and ends."""
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task
        await self._servicer.enter_graceful_shutdown()
