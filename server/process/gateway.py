"""Builds a gateway from its settings: engine, ports, and their helpers."""

import contextlib
import ctypes
import logging
import os
import signal
import socket
import sys

from starlette.types import ASGIApp

from ..app import create_app
from ..dependencies import Lifecycle
from ..engines.chosen import make_engine
from ..engines.embedded.saved_model import load_tensorflow
from ..observability.metrics import Metrics
from ..observability.worker_metrics import WorkerMetrics, write_metrics
from ..protos.modules import load_protos
from ..settings import Settings
from ..wire.codec import Codec
from .server import GatewayServer, listening_socket, url_of, with_admin
from .start_checks import check_start
from .workers import Worker

# The numbers of glibc's <malloc.h>.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3


class Gateway:
    """One serving process: the only one, or one of several workers."""

    def __init__(self, settings: Settings, worker: Worker | None = None) -> None:
        """Takes the ports and imports the modules; `run` serves.

        `worker` is the worker's task; None for the only process.

        Raises:
            StartError: See `check_start`. A required package is missing.
        """
        self._settings = settings
        self._worker = worker
        self._keys = check_start(settings, is_worker=worker is not None)
        share = worker is not None
        port = worker.port if worker else settings.port
        # Other workers may already serve on this port. So this worker only reserves the port now,
        # and listens once it can answer: until then, the system gives connections to the others.
        self._listener = listening_socket(settings.host, port, share=share, listen=not share)
        self._admin_listener: socket.socket | None = None
        if settings.admin_port is not None and (worker is None or worker.index == 0):
            self._admin_listener = listening_socket(
                settings.admin_host, settings.admin_port, flag="--admin-port", listen=False
            )
        if settings.engine == "embedded":
            load_tensorflow()
        if settings.grpc_port is not None or settings.engine == "tfserving":
            load_protos()
        self._metrics, self._codec = Metrics(), Codec()
        # All workers share a file of routes.
        shared = (worker.models, worker.folder / "routes.json") if worker else ()
        self._engine = make_engine(settings, self._metrics, self._codec.run, *shared)

    def run(self) -> int:
        """Serves until a signal stops it; returns the exit status."""
        _keep_freed_memory()
        settings, worker = self._settings, self._worker
        lifecycle = Lifecycle()
        workers = WorkerMetrics(worker.heartbeat) if worker else None
        gateway = create_app(
            settings,
            self._engine,
            lifecycle,
            metrics=self._metrics,
            keys=self._keys,
            codec=self._codec,
            workers=workers,
            load_first=worker is not None and worker.replaces,
        )
        app: ASGIApp = gateway
        listeners = [self._listener]
        if self._admin_listener is not None:
            from ..admin import create_admin_app  # its routes and models take 12 MiB

            admin = create_admin_app(settings, self._engine, self._keys, lifecycle)
            app = with_admin(app, admin, self._admin_listener)
            listeners.append(self._admin_listener)
        grpc_server = None
        if settings.grpc_port is not None:
            from ..grpc.server import GrpcServer  # loads grpc

            grpc_server = GrpcServer(
                gateway.state.plane,
                settings,
                worker.grpc_port if worker else settings.grpc_port,
                share_port=worker is not None,
                accounts=gateway.state.accounts,
                lifecycle=lifecycle,
            )

        async def started() -> None:
            scheme = "https" if settings.tls_cert else "http"
            print(f"Gateway listens on {url_of(self._listener, scheme)}", flush=True)
            if self._admin_listener is not None:
                print(f"Admin API listens on {url_of(self._admin_listener, scheme)}", flush=True)
            if grpc_server is not None:
                print(f"gRPC listens on {settings.host}:{grpc_server.port}", flush=True)
            if workers is not None:
                await write_metrics(self._metrics, workers)

        reload = self._keys.reload if self._keys is not None else lambda: None
        server = GatewayServer(app, settings, lifecycle, grpc_server, started, reload)
        server.run(listeners)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # the end of the loop removed the handler
        if lifecycle.abandoned or server.force_exit:
            # End the process at once: a normal exit would wait for threads that still run a model.
            logging.shutdown()
            sys.stdout.flush()
            os._exit(0)
        return 0


def _keep_freed_memory() -> None:
    """Lets glibc's `malloc` keep the memory of a large body for the next one.

    Otherwise the system backs it page by page for each request. This took half of the time for
    which a gRPC message of 24 MB holds up the event loop.
    """
    with contextlib.suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_M_MMAP_THRESHOLD, 32 << 20)
        mallopt(_M_TRIM_THRESHOLD, 256 << 20)
