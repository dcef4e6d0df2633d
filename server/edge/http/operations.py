"""Health, metrics and versions: endpoints for operating the gateway."""

import platform

from fastapi import APIRouter
from starlette.responses import JSONResponse, Response

from ... import __version__
from ...dataplane.lifecycle import Lifecycle
from ...dataplane.snapshot import Snapshots
from ...engines.routed import RoutedEngine
from ...observability.metrics import CONTENT_TYPE, Metrics
from ...observability.worker_metrics import WorkerMetrics

_OK = {"status": "ok"}


def operations_router(
    engine: RoutedEngine,
    lifecycle: Lifecycle,
    metrics: Metrics,
    snapshots: Snapshots,
    workers: WorkerMetrics,
) -> APIRouter:
    """Creates the routes of the operations endpoints."""
    router = APIRouter()

    @router.get("/")
    async def alive() -> Response:
        # KServe's first protocol checks here whether the server is alive.
        return JSONResponse({"status": "alive"})

    @router.get("/livez")
    async def livez() -> Response:
        return JSONResponse(_OK)

    @router.get("/readyz")
    async def readyz() -> Response:
        if lifecycle.draining:
            return _unavailable("Draining: the gateway is about to stop")
        if engine.routes.draining:
            return _unavailable("Draining: an operator sends traffic elsewhere")
        if not engine.ready():
            return _unavailable("Not every model has a version that serves")
        return JSONResponse(_OK)

    @router.get("/startupz")
    async def startupz() -> Response:
        if not engine.started():
            return _unavailable("Models are being loaded")
        return JSONResponse(_OK)

    @router.get("/version")
    async def version() -> Response:
        return JSONResponse(
            {
                "gateway": __version__,
                "python": platform.python_version(),
                **engine.component_versions(),
            }
        )

    @router.get("/metrics")
    async def prometheus() -> Response:
        await snapshots.models()
        exposition = workers.merged(metrics.exposition())
        return Response(exposition, media_type=CONTENT_TYPE)

    return router


def _unavailable(message: str) -> Response:
    return JSONResponse({"error": message}, 503, {"retry-after": "1"})
