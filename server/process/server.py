"""Sockets, applications by port, and the configuration of uvicorn."""

import math
import socket
import ssl
from typing import Any

import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send

from ..errors import StartError
from ..settings import Settings
from .protocol import BoundedProtocol

# A connection is closed if the client acknowledges no data for this many milliseconds.
_TCP_USER_TIMEOUT_MS = 60_000
_BACKLOG = 2048


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


def ports_of(settings: Settings) -> list[tuple[str, str, int]]:
    """Returns the flag, the host and the number of each port in the settings."""
    ports = (
        ("--port", settings.host, settings.port),
        ("--grpc-port", settings.host, settings.grpc_port),
        ("--admin-port", settings.admin_host, settings.admin_port),
    )
    return [(flag, host, port) for flag, host, port in ports if port is not None]


def print_addresses(
    settings: Settings, listener: socket.socket, admin: socket.socket | None, grpc_port: int | None
) -> None:
    """Prints the addresses of the listeners, and of the gRPC port, as clients write them."""
    scheme = "https" if settings.tls_cert else "http"
    for name, each in (("Gateway", listener), ("Admin API", admin)):
        if each is not None:
            host, port = each.getsockname()[:2]
            host = f"[{host}]" if ":" in host else host
            print(f"{name} listens on {scheme}://{host}:{port}", flush=True)
    if grpc_port is not None:
        print(f"gRPC listens on {settings.host}:{grpc_port}", flush=True)


def with_admin(app: ASGIApp, admin: ASGIApp, listener: socket.socket) -> ASGIApp:
    """Returns an application that answers requests to another port with `admin`.

    `app` answers all other requests, and starts and ends with the server. `listener` is the socket
    of the admin port.
    """
    host, port = listener.getsockname()[:2]

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        # The local address of the connection. No header changes it.
        local = scope.get("server") or ("", 0)
        is_admin = local[1] == port and host in (local[0], "0.0.0.0", "::")
        await (admin if is_admin else app)(scope, receive, send)

    return answer


def uvicorn_config(app: ASGIApp, settings: Settings, lifespan: Any) -> uvicorn.Config:
    """Returns uvicorn's settings; `lifespan` is `on`, or `off` to start no application."""
    limits = {
        "seconds": settings.head_seconds,
        "write_seconds": settings.body_seconds,
        "max_bytes": settings.max_header_bytes,
    }
    return uvicorn.Config(
        app,
        http=type("Bounded", (BoundedProtocol,), limits),
        lifespan=lifespan,
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=bool(settings.trusted_proxies),
        forwarded_allow_ips=settings.trusted_proxies,
        timeout_keep_alive=60,
        # uvicorn takes whole seconds: round up.
        timeout_graceful_shutdown=math.ceil(settings.shutdown_seconds),
        ssl_certfile=settings.tls_cert,
        ssl_keyfile=settings.tls_key,
        ssl_ca_certs=str(settings.tls_client_ca) if settings.tls_client_ca else None,
        ssl_cert_reqs=ssl.CERT_REQUIRED if settings.tls_client_ca else ssl.CERT_NONE,
    )
