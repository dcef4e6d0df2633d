"""The server process: sockets, signals, and shutdown."""

import asyncio
import contextlib
import signal
import socket
import ssl
from collections.abc import Callable, Iterator, Sequence
from types import FrameType
from typing import Any, Protocol

import uvicorn
from starlette.types import ASGIApp

from ..dataplane.lifecycle import Lifecycle
from ..errors import StartError
from ..settings import Settings
from .protocol import bounded_protocol

# A connection is closed if the client acknowledges no data for this many milliseconds.
_TCP_USER_TIMEOUT_MS = 60_000
_BACKLOG = 2048


class Companion(Protocol):
    """A helper that starts after model loading begins, and stops before models are released."""

    async def start(self) -> None:
        """Starts."""
        ...

    async def stop(self, seconds: float) -> None:
        """Stops, and gives running work some time."""
        ...


def listening_socket(
    host: str, port: int, *, share: bool = False, flag: str = "--port", listen: bool = True
) -> socket.socket:
    """Takes a port before any slow initialisation.

    Args:
        host: Address.
        port: Port; 0 for any free one.
        share: True if other processes listen on the port too.
        flag: The flag that chooses another port, for the error message.
        listen: True to listen now; False only to reserve the port.

    Raises:
        StartError: The address is not available.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if share:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    # Accepted connections inherit these options, which detect dead peers.
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _TCP_USER_TIMEOUT_MS)
    try:
        listener.bind((host, port))
        if listen:
            listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        raise StartError(
            f"Port {port} of {host} must be free to listen on: {error.strerror or error}. "
            f"Stop what uses it, or choose another with {flag}."
        ) from None
    listener.setblocking(False)
    return listener


def url_of(listener: socket.socket, scheme: str) -> str:
    """Returns a listener's address as clients write it."""
    host, port = listener.getsockname()[:2]
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}"


def _config(app: ASGIApp, settings: Settings, lifespan: Any) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http=bounded_protocol(settings.head_seconds, settings.max_header_bytes),
        lifespan=lifespan,
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=bool(settings.trusted_proxies),
        forwarded_allow_ips=settings.trusted_proxies,
        timeout_keep_alive=60,
        # uvicorn takes whole seconds: round up.
        timeout_graceful_shutdown=max(1, round(settings.shutdown_seconds)),
        ssl_certfile=settings.tls_cert,
        ssl_keyfile=settings.tls_key,
        ssl_ca_certs=str(settings.tls_client_ca) if settings.tls_client_ca else None,
        ssl_cert_reqs=ssl.CERT_REQUIRED if settings.tls_client_ca else ssl.CERT_NONE,
    )


class GatewayServer(uvicorn.Server):
    """A uvicorn server with an orderly shutdown and exit status 0.

    SIGTERM makes `/readyz` fail at once, and closes the listening socket `drain_seconds` later.
    SIGINT (Ctrl-C) closes it at once. After either of them, the server waits for running requests,
    but after a second signal it does not. SIGHUP makes it read the keys again.
    """

    def __init__(
        self,
        app: ASGIApp,
        settings: Settings,
        lifecycle: Lifecycle,
        companions: Sequence[Companion] = (),
        announce: Callable[[], None] = lambda: None,
        reload: Callable[[], None] | None = None,
    ) -> None:
        """Creates the server; `serve` runs it.

        Args:
            app: The application.
            settings: The time limits.
            lifecycle: Announces the shutdown.
            companions: Helpers that start and stop with the server.
            announce: Called when the server listens and all companions have started.
            reload: Called in the event loop after a SIGHUP.
        """
        super().__init__(_config(app, settings, "on"))
        self._lifecycle = lifecycle
        self._companions = companions
        self._announce = announce
        self._reload = reload
        self._drain_seconds = settings.drain_seconds
        self._shutdown_seconds = settings.shutdown_seconds
        self._loop: asyncio.AbstractEventLoop | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Starts the application and begins to listen."""
        self._loop = asyncio.get_running_loop()
        await super().startup(sockets)
        if not self.should_exit:
            for companion in self._companions:
                await companion.start()
            self._announce()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Ends running requests, then the application."""
        await asyncio.gather(*(each.stop(self._shutdown_seconds) for each in self._companions))
        await super().shutdown(sockets)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Installs a handler for SIGHUP, which would otherwise end the process."""
        loop = asyncio.get_running_loop()

        def reload(_: int, __: FrameType | None) -> None:
            if self._reload is not None:
                loop.call_soon_threadsafe(self._reload)

        before = signal.signal(signal.SIGHUP, reload)
        try:
            with super().capture_signals():
                yield
        finally:
            signal.signal(signal.SIGHUP, before)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:  # noqa: ARG002
        """Handles SIGTERM and SIGINT. uvicorn's handler would raise the signal again at the end."""
        if self._lifecycle.draining:
            self.force_exit = True
            self.should_exit = True
            return
        self._lifecycle.draining = True
        if sig == signal.SIGTERM and self._drain_seconds and self._loop is not None:
            loop = self._loop
            loop.call_soon_threadsafe(loop.call_later, self._drain_seconds, self._stop)
        else:
            self._stop()

    def _stop(self) -> None:
        self.should_exit = True


class AdminServer(uvicorn.Server):
    """The admin port, in the same event loop. The other server handles the signals."""

    def __init__(self, app: ASGIApp, settings: Settings, listener: socket.socket) -> None:
        """Creates the server.

        Args:
            app: The admin application.
            settings: The gateway's settings.
            listener: The port's socket.
        """
        super().__init__(_config(app, settings, "off"))
        self._listener = listener
        self._task: asyncio.Task[None] | None = None

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Installs no signal handlers."""
        yield

    async def start(self) -> None:
        """See `Companion.start`."""
        self._listener.listen(_BACKLOG)
        self._task = asyncio.get_running_loop().create_task(self.serve([self._listener]))

    async def stop(self, seconds: float) -> None:  # noqa: ARG002
        """See `Companion.stop`."""
        self.should_exit = True
        if self._task is not None:
            await self._task
