"""Builds the application: routers, one middleware, handlers of exceptions, start and end."""

import asyncio
import inspect
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match

from . import __version__
from .dependencies import DataPlane
from .engines.base import Engine
from .engines.chosen import make_engine
from .engines.routed import RoutedEngine
from .keys import KeyRing, keys_of
from .middleware import RecordMiddleware
from .observability.accounts import Accounts
from .observability.logs import LOG
from .observability.metrics import Metrics
from .routers import health, page, v1, v2
from .routers.body import error_response
from .routers.openapi import add_document
from .services.snapshot import Snapshots
from .settings import Settings, load_settings
from .wire.codec import Codec

# At shutdown, the gateway waits this many seconds for model runs that continue after their requests
# have ended.
_ENGINE_SECONDS = 2.0
_LOOK_SECONDS = 0.05

# Newer FastAPI versions create spans, which cost time in each request, without `--tracing` too.
_WITHOUT_SPANS: dict[str, Any] = (
    {"telemetry": {"tracing": False, "metrics": False, "logs": False}}
    if "telemetry" in inspect.signature(FastAPI.__init__).parameters
    else {}
)


def create_app(
    settings: Settings,
    engine: Engine,
    *,
    metrics: Metrics | None = None,
    keys: KeyRing | None = None,
    heartbeat: Path | None = None,
    plane: DataPlane | None = None,
    codec: Codec | None = None,
    load_first: bool = False,
) -> FastAPI:
    """Builds the gateway's application. One process may hold several.

    Args:
        settings: The gateway's settings.
        engine: Runs the models. The application starts and closes it.
        metrics: Counts requests; the application creates them by default.
        keys: The accepted API keys. Without them no key is needed.
        heartbeat: The file of this worker's metrics; None for the only process.
        plane: Answers requests to models. By default the application creates one from the
            settings, the engine, the keys and the codec.
        codec: Decodes and encodes bodies. Give it if the engine shares it.
        load_first: True to accept requests only after the models were loaded or failed to load.

    Example:
        >>> from server.engines.embedded.engine import EmbeddedEngine
        >>> from server.settings import load_settings
        >>> settings = load_settings(model_dir="models")
        >>> create_app(settings, EmbeddedEngine(settings)).title
        'Embedding gateway'
    """
    metrics = metrics or Metrics()
    routed = engine if isinstance(engine, RoutedEngine) else RoutedEngine(engine)
    plane = plane or DataPlane(routed, settings, keys, codec)
    lifecycle = plane.lifecycle
    plane.accounts = Accounts(metrics, routed.model_names, settings)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        await routed.start()
        if load_first:
            while not routed.started() and not lifecycle.draining:
                await asyncio.sleep(_LOOK_SECONDS)
        yield
        lifecycle.draining = True
        await plane.codec.close()
        try:
            await asyncio.wait_for(routed.close(), _ENGINE_SECONDS)
        except asyncio.TimeoutError:
            # The process must end although a model's thread cannot be stopped. `Gateway.run` checks
            # this flag, and then ends the process without waiting for threads.
            lifecycle.abandoned = True
            LOG.warning("a model still runs; the process ends without it")

    app = bare_app(plane, lifespan=lifespan)
    app.state.metrics = metrics
    # The statistics are of the newest version, whatever the traffic split.
    app.state.snapshots = Snapshots(routed.inner, metrics)
    app.state.heartbeat = heartbeat
    # `include_router` would match each request twice. FastAPI tries its routes in order, so its own
    # route of the document comes last.
    routers = [v1.router, v2.models, v2.server, health.router]
    if plane.accounts.live is not None:
        routers.append(page.router)
    app.router.routes[:0] = [route for router in routers for route in router.routes]
    add_document(app)
    return app


def create_app_from_environment() -> FastAPI:
    """Builds the application for any ASGI server, with settings from `DE_GATEWAY_…` variables.

    Settings of ports, processes and TLS have no effect: they belong to the server.

        uvicorn --factory de_core_gateway.app:create_app_from_environment
    """
    settings, metrics, codec = load_settings(), Metrics(), Codec()
    engine = make_engine(settings, metrics, codec.run)
    return create_app(settings, engine, metrics=metrics, keys=keys_of(settings), codec=codec)


def bare_app(plane: DataPlane, *middleware: Any, **options: Any) -> FastAPI:
    """Returns an application with one route, for its document.

    `middleware` are classes of further middleware, and `options` are arguments of `FastAPI`.
    """
    telemetry = _WITHOUT_SPANS
    if plane.settings.tracing:
        from .observability.tracing import fastapi_telemetry

        telemetry = {"telemetry": fastapi_telemetry()}
    # FastAPI's pages /docs and /redoc are off, because they load scripts from other sites.
    app = FastAPI(
        title="Embedding gateway",
        description="TensorFlow Serving's REST API, lookups of embeddings, and the Open Inference "
        "Protocol.",
        version=__version__,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        **options,
        **telemetry,
    )
    app.state.plane = plane
    for each in middleware:
        app.add_middleware(each)
    app.add_middleware(RecordMiddleware, plane=plane)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _http_error)
    return app


async def _invalid(_: Request, error: Any) -> Response:
    told = "; ".join(
        f"{'.'.join(map(str, each['loc']))}: {each['msg']}"
        # FastAPI gives no input for a body that is no JSON.
        + ("" if each["type"] == "json_invalid" else f". Received: {each['input']!r:.64}")
        for each in error.errors()
    )
    return error_response(400, f"The request is wrong: {told[:512]}")


async def _http_error(request: Request, error: Any) -> Response:
    headers = dict(error.headers or {})
    if error.status_code == 405:
        allowed = {
            method
            for route in request.app.routes
            if route.matches(request.scope)[0] is not Match.NONE
            for method in getattr(route, "methods", None) or ()
        }
        if "GET" in allowed:  # see RecordMiddleware
            allowed.add("HEAD")
        headers = {"allow": ", ".join(sorted(allowed))}
    what = {404: "Not found", 405: "Method not allowed"}.get(error.status_code, str(error.detail))
    encoded = tuple((name.encode(), value.encode("latin-1")) for name, value in headers.items())
    text = f"{what}: {request.method} {request.scope['path']}"
    return error_response(error.status_code, text, encoded)
