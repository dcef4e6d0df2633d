"""The serving process: its parts, its start, signals and shutdown."""

import asyncio
import contextlib
import ctypes
import logging
import os
import signal
import socket
import sys
from types import FrameType
from typing import TYPE_CHECKING

import uvicorn
from starlette.types import ASGIApp

from ..app import create_app
from ..engines.chosen import make_engine
from ..engines.embedded.saved_model import load_tensorflow
from ..observability.metrics import Metrics
from ..observability.worker_metrics import keep_written
from ..settings import Settings
from ..wire.codec import Codec
from .server import listening_socket, print_addresses, uvicorn_config, with_admin
from .start_checks import check_start
from .workers import Worker

if TYPE_CHECKING:
    from ..grpc.server import GrpcServer

# The numbers of glibc's <malloc.h>.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3


class Gateway(uvicorn.Server):
    """One serving process: the only one, or one of several workers.

    SIGTERM makes `/readyz` fail at once, and closes the listening sockets `drain_seconds` later.
    SIGINT (Ctrl-C) closes them at once. After either of them, the process waits for running
    requests, but after a second signal it does not. SIGHUP makes it read the keys again.
    """

    _grpc: "GrpcServer | None" = None

    def __init__(self, settings: Settings, worker: Worker | None = None) -> None:
        """Takes the ports, imports the modules, and builds the application.

        `worker` is the worker's task; None for the only process.

        Raises:
            StartError: See `check_start`. A required package is missing.
        """
        self._settings = settings
        self._keys = check_start(settings, is_worker=worker is not None)
        share = worker is not None
        # Other workers may already serve on this port. So this worker only reserves the port now,
        # and listens once it can answer: until then, the system gives connections to the others.
        self._listener = listening_socket(
            settings.host, settings.port, share=share, listen=not share
        )
        self._admin_listener: socket.socket | None = None
        if settings.admin_port is not None and (worker is None or worker.index == 0):
            self._admin_listener = listening_socket(
                settings.admin_host, settings.admin_port, flag="--admin-port", listen=False
            )
        if settings.engine == "embedded":
            load_tensorflow()
        self._metrics, codec = Metrics(), Codec()
        # All workers share a file of routes.
        shared = (worker.models, worker.folder / "routes.json") if worker else ()
        engine = make_engine(settings, self._metrics, codec.run, *shared)
        self._heartbeat = worker.heartbeat if worker else None
        gateway = create_app(
            settings,
            engine,
            metrics=self._metrics,
            keys=self._keys,
            codec=codec,
            heartbeat=self._heartbeat,
            load_first=worker is not None and worker.replaces,
        )
        self._lifecycle = gateway.state.plane.lifecycle
        app: ASGIApp = gateway
        if self._admin_listener is not None:
            from ..admin import create_admin_app  # its routes and models take 12 MiB

            app = with_admin(app, create_admin_app(gateway.state.plane), self._admin_listener)
        if settings.grpc_port is not None:
            from ..grpc.server import GrpcServer  # loads grpc

            self._grpc = GrpcServer(gateway.state.plane, settings.grpc_port, share_port=share)
        super().__init__(uvicorn_config(app, settings, "on"))

    def run_until_stopped(self) -> int:
        """Serves until a signal stops it; returns the exit status."""
        _keep_freed_memory()
        listeners = [self._listener, self._admin_listener]
        self.run([each for each in listeners if each is not None])
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # the end of the loop removed the handler
        if self._lifecycle.abandoned or self.force_exit:
            # End the process at once: a normal exit would wait for threads that still run a model.
            logging.shutdown()
            sys.stdout.flush()
            os._exit(0)
        return 0

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Starts the application and begins to listen."""
        self._loop = asyncio.get_running_loop()
        reload = self._keys.reload if self._keys is not None else lambda: None
        self._loop.add_signal_handler(signal.SIGHUP, reload)
        await super().startup(sockets)
        if not self.should_exit:
            if self._grpc is not None:
                await self._grpc.start()
            self._task = self._loop.create_task(self._report())

    async def _report(self) -> None:
        """Prints the addresses, and then tells other workers this worker's metrics."""
        grpc_port = self._grpc.port if self._grpc is not None else None
        print_addresses(self._settings, self._listener, self._admin_listener, grpc_port)
        if self._heartbeat is not None:
            await keep_written(self._metrics, self._heartbeat)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Ends running requests, then the application."""
        if self._grpc is not None:
            # uvicorn waits for these tasks, until the time is over or a second signal comes.
            tasks = self.server_state.tasks
            stopping = self._loop.create_task(self._grpc.stop(self._settings.shutdown_seconds))
            tasks.add(stopping)
            stopping.add_done_callback(tasks.discard)
        await super().shutdown(sockets)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:  # noqa: ARG002
        """Handles SIGTERM and SIGINT. uvicorn's handler would raise the signal again at the end."""
        if self._lifecycle.draining:
            self.force_exit = True
            self.should_exit = True
            return
        self._lifecycle.draining = True
        seconds = self._settings.drain_seconds
        if sig == signal.SIGTERM and seconds and hasattr(self, "_loop"):
            self._loop.call_soon_threadsafe(self._loop.call_later, seconds, self._stop)
        else:
            self._stop()

    def _stop(self) -> None:
        self.should_exit = True


def _keep_freed_memory() -> None:
    """Lets glibc's `malloc` keep the memory of a large body for the next one.

    Otherwise the system backs it page by page for each request. This took half of the time for
    which a gRPC message of 24 MB holds up the event loop.
    """
    with contextlib.suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_M_MMAP_THRESHOLD, 32 << 20)
        mallopt(_M_TRIM_THRESHOLD, 256 << 20)
