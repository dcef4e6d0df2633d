"""The server process: socket, signals, and the way out."""

import asyncio
import signal
import socket
from types import FrameType

import uvicorn
from starlette.types import ASGIApp

from server.lifecycle import Lifecycle
from server.settings import Settings


class StartError(Exception):
    """The process cannot start; the message says what to do."""


def listening_socket(host: str, port: int) -> socket.socket:
    """Takes the port before anything slow happens.

    Raises:
        StartError: The address cannot be listened on.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(2048)
    except OSError as error:
        listener.close()
        raise StartError(
            f"Port {port} of {host} must be free to listen on: {error.strerror or error}. "
            "Stop what uses it, or choose another with --port."
        ) from None
    listener.setblocking(False)
    return listener


class GatewayServer(uvicorn.Server):
    """A uvicorn server that leaves in order, and with exit status 0.

    SIGTERM flips readiness first and closes the listener `drain_seconds` later; SIGINT
    (Ctrl-C) closes it at once; a second signal waits for nobody.
    """

    def __init__(self, app: ASGIApp, settings: Settings, lifecycle: Lifecycle) -> None:
        """Makes the server; `serve` runs it."""
        super().__init__(
            uvicorn.Config(
                app,
                lifespan="on",
                ws="none",
                log_config=None,
                access_log=False,
                server_header=False,
                # Rounded up: uvicorn takes whole seconds.
                timeout_graceful_shutdown=max(1, round(settings.shutdown_seconds)),
            )
        )
        self._lifecycle = lifecycle
        self._drain_seconds = settings.drain_seconds
        self._loop: asyncio.AbstractEventLoop | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Starts the application and begins to listen."""
        self._loop = asyncio.get_running_loop()
        await super().startup(sockets)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:  # noqa: ARG002
        """Takes a signal. uvicorn's own would end the process by that signal after all."""
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
