"""Builds a gateway from its settings: engine, ports, and their helpers."""

import logging
import os
import socket
import sys
from pathlib import Path

from .. import COMMAND
from ..app import create_admin_app, create_app
from ..dataplane.codec import Codec
from ..dataplane.keys import KeyRing
from ..dataplane.lifecycle import Lifecycle
from ..dataplane.plane import DataPlane
from ..edge.grpc.server import GrpcOptions, GrpcServer
from ..engines.base import Engine
from ..engines.embedded.saved_model import load_tensorflow
from ..engines.routed import RoutedEngine
from ..engines.routes import RoutesFile
from ..errors import StartError
from ..observability.accounts import Accounts, accounts_of
from ..observability.metrics import Metrics
from ..observability.worker_metrics import MetricsWriter, WorkerMetrics
from ..parts import folder_of, keys_of, make_engine, routes_of, tfserving_options
from ..protos.modules import load_protos
from ..settings import Settings
from .memory import keep_freed_memory
from .server import (
    AdminServer,
    Companion,
    GatewayServer,
    listening_socket,
    url_of,
)
from .start_checks import check_certificates, check_ports, warn_of_missing
from .workers import Heartbeat, Worker


class Gateway:
    """One serving process: the only one, or one of several workers."""

    def __init__(self, settings: Settings, worker: Worker | None = None) -> None:
        """Takes the ports and imports the modules; `run` serves.

        Args:
            settings: The settings.
            worker: The worker's task; None for the only process.

        Raises:
            StartError: A port is taken, or settings contradict each other. Errors of folders, keys,
                labels and missing packages pass through.
        """
        self._settings = settings
        self._worker = worker
        self._keys = self.check(settings, worker)
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
        self._engine = RoutedEngine(self._make_engine(), routes_of(settings), self._routes_file())

    @staticmethod
    def check(settings: Settings, worker: Worker | None = None) -> KeyRing | None:
        """Checks files, ports and models before anything starts; returns the keys, or None.

        The supervisor checks ports and models once for all workers.
        """
        keys = keys_of(settings)
        if settings.admin_port is not None and (keys is None or not keys.allows("admin")):
            raise StartError(
                "The admin port needs a key of the scope admin: make one with "
                f"`{COMMAND}.keys NAME admin` and give its file as --keys-file."
            )
        if (settings.tls_cert is None) != (settings.tls_key is None):
            raise StartError("TLS needs both --tls-cert and --tls-key.")
        shown = (settings.upstream_cert, settings.upstream_key)
        if (shown[0] is None) != (shown[1] is None) or (shown[0] and not settings.upstream_ca):
            raise StartError(
                "A certificate for upstreams needs --upstream-ca, --upstream-cert and "
                "--upstream-key."
            )
        for flag, path in (
            ("--tls-cert", settings.tls_cert),
            ("--tls-key", settings.tls_key),
            ("--tls-client-ca", settings.tls_client_ca),
            ("--upstream-ca", settings.upstream_ca),
            ("--upstream-cert", settings.upstream_cert),
            ("--upstream-key", settings.upstream_key),
            ("--upstream-token-file", settings.upstream_token_file),
        ):
            if path is not None and not (path.is_file() and os.access(path, os.R_OK)):
                raise StartError(f"The file must exist and be readable. Received: {flag}={path}")
        check_certificates(settings)
        labels = routes_of(settings).labels
        if settings.engine == "embedded":
            folder_of(settings).check()
        else:
            tfserving_options(settings)
        if worker is None:
            check_ports(settings)
            warn_of_missing(settings, labels)
        return keys

    def run(self) -> int:
        """Serves until a signal stops it; returns the exit status."""
        keep_freed_memory()
        settings, worker = self._settings, self._worker
        lifecycle = Lifecycle()
        workers = WorkerMetrics(worker.folder if worker else None, worker.index if worker else 0)
        plane = DataPlane(self._engine, settings, self._keys, self._codec)
        accounts = accounts_of(settings, self._metrics, self._engine.model_names)
        app = create_app(
            settings,
            self._engine,
            lifecycle,
            metrics=self._metrics,
            workers=workers,
            plane=plane,
            accounts=accounts,
            load_first=worker is not None and worker.replaces,
        )
        companions: list[Companion] = []
        if worker is not None:
            companions += [MetricsWriter(self._metrics, workers), Heartbeat(worker)]
        grpc_server: GrpcServer | None = None
        if settings.grpc_port is not None:
            grpc_server = self._grpc_server(settings.grpc_port, plane, accounts, lifecycle)
            companions.append(grpc_server)
        if self._admin_listener is not None:
            admin = create_admin_app(settings, self._engine, self._keys, lifecycle)
            companions.append(AdminServer(admin, settings, self._admin_listener))
        reload = self._keys.reload if self._keys is not None else None
        server = GatewayServer(
            app, settings, lifecycle, companions, lambda: self._announce(grpc_server), reload
        )
        server.run([self._listener])
        if lifecycle.abandoned or server.force_exit:
            # End the process at once: a normal exit would wait for threads that still run a model.
            logging.shutdown()
            sys.stdout.flush()
            os._exit(0)
        return 0

    def _announce(self, grpc_server: GrpcServer | None) -> None:
        scheme = "https" if self._settings.tls_cert else "http"
        print(f"Gateway listens on {url_of(self._listener, scheme)}", flush=True)
        if self._admin_listener is not None:
            print(f"Admin API listens on {url_of(self._admin_listener, scheme)}", flush=True)
        if grpc_server is not None:
            print(f"gRPC listens on {self._settings.host}:{grpc_server.port}", flush=True)

    def _make_engine(self) -> Engine:
        promised = self._worker.models if self._worker else None
        return make_engine(self._settings, self._metrics, self._codec.run, promised)

    def _routes_file(self) -> RoutesFile:
        if self._settings.routes_file is not None or self._worker is None:
            return RoutesFile(self._settings.routes_file)
        return RoutesFile(self._worker.folder / "routes.json")

    def _grpc_server(
        self, port: int, plane: DataPlane, accounts: Accounts, lifecycle: Lifecycle
    ) -> GrpcServer:
        settings = self._settings
        certificate: tuple[Path, Path] | None = None
        if settings.tls_cert is not None and settings.tls_key is not None:
            certificate = (settings.tls_cert, settings.tls_key)
        options = GrpcOptions(
            host=settings.host,
            port=self._worker.grpc_port if self._worker else port,
            max_message_bytes=settings.max_decompressed_bytes,
            max_in_flight=settings.max_in_flight,
            share_port=self._worker is not None,
            certificate=certificate,
            client_ca=settings.tls_client_ca,
        )
        return GrpcServer(plane, options, accounts, lifecycle)
