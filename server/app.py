"""The ASGI application, put together."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from server import __version__
from server.api.data_plane import DataPlane
from server.api.openapi import openapi_document
from server.api.operations import operations_router
from server.api.raw_route import RawPrefixRoute
from server.api.responses import error_response
from server.engines.base import Engine
from server.lifecycle import Lifecycle
from server.middleware.body_limit import BodyLimit
from server.middleware.gzip_request import GzipRequest
from server.middleware.request_context import RequestContext
from server.observability.metrics import Metrics
from server.settings import Settings
from server.wire.paths import PREFIX


def create_app(settings: Settings, engine: Engine, lifecycle: Lifecycle | None = None) -> FastAPI:
    """Makes the gateway's application; several may live in one process.

    Args:
        settings: What it may be told.
        engine: What answers. It is started and closed with the application.
        lifecycle: Where the end is announced; one of its own if not given.

    Example:
        >>> from server.engines.embedded import EmbeddedEngine, EmbeddedOptions
        >>> from server.engines.model_folder import ModelFolder
        >>> from server.settings import load_settings
        >>> settings = load_settings(model_dir="models")
        >>> engine = EmbeddedEngine(EmbeddedOptions(ModelFolder(settings.model_dir)))
        >>> create_app(settings, engine).title
        'Embedding gateway'
    """
    state = lifecycle or Lifecycle()
    metrics = Metrics()

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        await engine.start()
        yield
        state.draining = True
        await engine.close()

    # No /docs and /redoc: their pages load scripts from elsewhere.
    app = FastAPI(
        title="Embedding gateway",
        version=__version__,
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    app.include_router(operations_router(engine, state, metrics))
    app.router.routes.append(RawPrefixRoute(PREFIX, DataPlane(settings, engine)))
    app.add_exception_handler(HTTPException, _http_error)
    # The last one added is the outermost.
    app.add_middleware(GzipRequest, max_bytes=settings.max_decompressed_bytes)
    app.add_middleware(BodyLimit, max_bytes=settings.max_body_bytes)
    app.add_middleware(RequestContext, metrics=metrics, known_models=engine.model_names)

    def openapi() -> dict[str, Any]:
        return openapi_document()

    # The documented way to describe an API by hand.
    setattr(app, "openapi", openapi)  # noqa: B010
    return app


async def _http_error(request: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 500
    what = {404: "Not found", 405: "Method not allowed"}.get(status, "Request refused")
    headers = error.headers if isinstance(error, HTTPException) else None
    return error_response(status, f"{what}: {request.method} {request.url.path}", headers)
