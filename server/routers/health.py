"""Health, metrics and versions: endpoints for operating the gateway."""

import platform

from fastapi import APIRouter
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response

from .. import __version__
from ..errors import unavailable
from ..observability.worker_metrics import of_all_workers
from .openapi import errors
from .schemas import Object

_OK = {"status": "ok"}

router = APIRouter()


@router.get("/", operation_id="alive", response_model=Object)
async def alive() -> Response:
    """Tells whether the process runs. KServe's first protocol asks here."""
    return JSONResponse({"status": "alive"})


@router.get("/livez", operation_id="livez", response_model=Object)
async def livez() -> Response:
    """Tells whether the process runs."""
    return JSONResponse(_OK)


@router.get("/readyz", operation_id="readyz", response_model=Object, responses=errors(503))
async def readyz(request: Request) -> Response:
    """Tells whether every model serves."""
    plane = request.app.state.plane
    if plane.lifecycle.draining:
        raise unavailable("Draining: the gateway is about to stop")
    if plane.engine.routes.draining:
        raise unavailable("Draining: an operator sends traffic elsewhere")
    if not plane.ready():
        raise unavailable("Not every model has a version that serves")
    return JSONResponse(_OK)


@router.get("/startupz", operation_id="startupz", response_model=Object, responses=errors(503))
async def startupz(request: Request) -> Response:
    """Tells whether the first loading is done."""
    if not request.app.state.plane.engine.started():
        raise unavailable("Models are being loaded")
    return JSONResponse(_OK)


@router.get("/version", operation_id="version", response_model=Object)
async def version(request: Request) -> Response:
    """Tells the versions of the software."""
    told = {"gateway": __version__, "python": platform.python_version()}
    return JSONResponse({**told, **request.app.state.plane.engine.component_versions()})


@router.get("/metrics", operation_id="metrics", response_class=PlainTextResponse)
async def metrics(request: Request) -> Response:
    """Returns the metrics in Prometheus' text format."""
    state = request.app.state
    await state.snapshots.models()
    exposition = state.metrics.exposition()
    if state.heartbeat is not None:
        exposition = of_all_workers(exposition, state.heartbeat)
    return Response(exposition, media_type=CONTENT_TYPE_LATEST)
