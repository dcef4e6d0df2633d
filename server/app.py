"""Builds the ASGI application from its parts."""

import asyncio
import dataclasses
import inspect
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from . import __version__
from .dataplane.keys import KeyRing
from .dataplane.lifecycle import Lifecycle
from .dataplane.plane import DataPlane
from .dataplane.snapshot import Snapshots
from .edge.http.admin import Admin
from .edge.http.exchange import HttpBounds
from .edge.http.front import Api, Front
from .edge.http.openapi import openapi_document
from .edge.http.operations import operations_router
from .edge.http.page import PREFIX as PAGE_PREFIX
from .edge.http.page import Page
from .edge.http.v1 import V1
from .edge.http.v2 import V2
from .engines.base import Engine
from .engines.routed import RoutedEngine
from .observability.accounts import Accounts, accounts_of
from .observability.logs import LOG
from .observability.metrics import Metrics
from .observability.worker_metrics import WorkerMetrics
from .settings import Settings
from .wire.paths import PREFIX

# At shutdown, the gateway waits this many seconds for model runs that continue after their requests
# have ended.
_ENGINE_SECONDS = 2.0
_LOOK_SECONDS = 0.05
_ADMIN_BYTES = 64 << 10

# Switch off the spans of newer FastAPI versions, which cost time in each request. `--tracing`
# creates spans of our own.
_OWN_TELEMETRY: dict[str, Any] = (
    {"telemetry": {"tracing": False, "metrics": False, "logs": False}}
    if "telemetry" in inspect.signature(FastAPI.__init__).parameters
    else {}
)


def create_app(
    settings: Settings,
    engine: Engine,
    lifecycle: Lifecycle | None = None,
    *,
    metrics: Metrics | None = None,
    keys: KeyRing | None = None,
    workers: WorkerMetrics | None = None,
    plane: DataPlane | None = None,
    accounts: Accounts | None = None,
    load_first: bool = False,
) -> FastAPI:
    """Builds the gateway's application. One process may hold several.

    Args:
        settings: The gateway's settings.
        engine: Runs the models. The application starts and closes it.
        lifecycle: Announces the shutdown; the application creates one by default.
        metrics: Counts requests; the application creates them by default.
        keys: The accepted API keys. Without them no key is needed.
        workers: The metrics of other worker processes, if there are any.
        plane: Answers requests to models. Give it if a gRPC port shares it; by default the
            application creates one from the settings, the engine and the keys.
        accounts: Counts and logs the requests. Give it if a gRPC port shares it; by default the
            application creates one from the metrics.
        load_first: True to accept requests only after the models were loaded or failed to load.

    Example:
        >>> from server.engines.embedded.engine import EmbeddedEngine, EmbeddedOptions
        >>> from server.engines.embedded.model_folder import ModelFolder
        >>> from server.settings import load_settings
        >>> settings = load_settings(model_dir="models")
        >>> engine = EmbeddedEngine(EmbeddedOptions(ModelFolder(settings.model_dir)))
        >>> create_app(settings, engine).title
        'Embedding gateway'
    """
    state = lifecycle or Lifecycle()
    metrics = metrics or Metrics()
    routed = engine if isinstance(engine, RoutedEngine) else RoutedEngine(engine)
    plane = plane or DataPlane(routed, settings, keys)
    if accounts is None:
        accounts = accounts_of(settings, metrics, routed.model_names)
    snapshots = Snapshots(routed, metrics)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        await routed.start()
        if load_first:
            await _load(routed, state)
        yield
        state.draining = True
        await plane.close()
        try:
            await asyncio.wait_for(routed.close(), _ENGINE_SECONDS)
        except asyncio.TimeoutError:
            # The process must end although a model's thread cannot be stopped. `Gateway.run` checks
            # this flag, and then ends the process without waiting for threads.
            state.abandoned = True
            LOG.warning("a model still runs; the process ends without it")

    # FastAPI's pages /docs and /redoc are off, because they load scripts from other sites.
    app = _Application(
        title="Embedding gateway",
        version=__version__,
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        **_OWN_TELEMETRY,
    )
    app.include_router(
        operations_router(routed, state, metrics, snapshots, workers or WorkerMetrics(None, 0))
    )
    app.add_exception_handler(HTTPException, _http_error)
    apis: dict[bytes, Api] = {
        PREFIX: V1(plane, settings.cors_origin),
        b"/v2": V2(plane, state),
    }
    if accounts.live is not None:
        apis[PAGE_PREFIX] = Page(accounts.live, snapshots)
    app.front = Front(apis, app.operate, plane, _bounds(settings), accounts, state)

    def openapi() -> dict[str, Any]:
        return openapi_document()

    # FastAPI's documentation says to replace the method `openapi` if the API is described by hand.
    setattr(app, "openapi", openapi)  # noqa: B010
    return app


class _Application(FastAPI):
    """FastAPI answers health, metrics and versions. Requests to models never reach it."""

    front: ASGIApp

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one request."""
        if scope["type"] == "http":
            await self.front(scope, receive, send)
        else:
            await self.operate(scope, receive, send)

    async def operate(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers a request with FastAPI's routes."""
        await super().__call__(scope, receive, send)


def _bounds(settings: Settings) -> HttpBounds:
    return HttpBounds(
        settings.max_header_bytes,
        settings.max_body_bytes,
        settings.max_decompressed_bytes,
        settings.body_seconds,
    )


async def _load(engine: RoutedEngine, lifecycle: Lifecycle) -> None:
    """Waits until the models are loaded, have failed to load, or shutdown has begun."""
    while not engine.started() and not lifecycle.draining:
        await asyncio.sleep(_LOOK_SECONDS)


def create_admin_app(
    settings: Settings,
    engine: RoutedEngine,
    keys: KeyRing | None,
    lifecycle: Lifecycle | None = None,
) -> ASGIApp:
    """Builds the application of the admin port; `engine` is the gateway's engine.

    Args:
        settings: The limits of the port.
        engine: The engine to administer. The gateway's application starts and closes it.
        keys: The API keys. Every request needs one with the scope `admin`.
        lifecycle: Announces the shutdown, if given.
    """
    bounds = dataclasses.replace(
        _bounds(settings), body_bytes=_ADMIN_BYTES, inflated_bytes=_ADMIN_BYTES
    )
    return Front(
        {b"": Admin(engine, keys)},
        None,
        DataPlane(engine, settings, keys),
        bounds,
        Accounts(Metrics(), None, engine.model_names),
        lifecycle or Lifecycle(),
    )


async def _http_error(request: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 500
    what = {404: "Not found", 405: "Method not allowed"}.get(status, "Request refused")
    headers = error.headers if isinstance(error, HTTPException) else None
    text = f"{what}: {request.method} {request.url.path}".encode("utf-8", "replace").decode()
    return JSONResponse({"error": text}, status, headers)
