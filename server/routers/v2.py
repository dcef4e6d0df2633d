"""Everything under /v2: the Open Inference Protocol."""

import orjson
from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from ..dependencies import RUN_SCOPES
from ..request import RECORD, Answer
from ..services import infer
from ..wire.oip import HEADER, decode_index
from . import schemas
from .body import answered, describe, run
from .openapi import JSON_LENGTH, TIMEOUT, described
from .routing import ModelRouter

#: Requests about models.
models = ModelRouter("/v2", ("/versions/{version}",))
#: Requests about the server.
server = APIRouter()


@models.on(
    "POST",
    "/infer",
    "infer",
    schemas.InferAnswer,
    "InferBody",
    {"tensors": {"inputs": [{"name": "x", "datatype": "FP32", "shape": [2], "data": [1.0, 2.0]}]}},
    [TIMEOUT, JSON_LENGTH],
    binary=True,
)
async def run_infer(request: Request) -> Response:
    """Runs any signature on tensors, in JSON or in bytes."""
    header = request.scope[RECORD].headers.get(HEADER)
    return await run(request, RUN_SCOPES, infer.infer, header=header)


@models.on("GET", "", "v2_metadata", schemas.ModelMetadata)
async def metadata(request: Request) -> Response:
    """Describes the model's inputs and outputs."""
    return await describe(request, ("predict",), infer.metadata)


@models.on("GET", "/config", "v2_config", schemas.Object)
async def config(request: Request) -> Response:
    """Describes the model as Triton does."""
    return await describe(request, ("predict",), infer.config)


@models.on("GET", "/ready", "v2_model_ready", schemas.Object)
async def model_ready(request: Request) -> Response:
    """Tells whether the model serves."""
    return await describe(request, ("predict",), infer.ready)


_LISTED = list[schemas.IndexEntry]
_READY_ONLY = {"serving": {"ready": True}}


@server.post("/v2/repository/index", **described("", "v2_index", _LISTED, "IndexBody", _READY_ONLY))
async def index(request: Request) -> Response:
    """Lists all models and their versions."""
    plane = request.app.state.plane
    request.scope[RECORD].verb = "index"

    async def work(body: bytes) -> Answer:
        ready = await plane.codec.run(len(body), "decode", decode_index, body, plane.limits)
        listed = await infer.repository_index(plane, ready=ready)
        return Answer(orjson.dumps(listed))

    return await answered(request, ("predict",), work)


@server.get("/v2/", include_in_schema=False)
@server.get("/v2", operation_id="v2_server", response_model=schemas.ServerMetadata)
async def about() -> Response:
    """Tells what this server is."""
    return JSONResponse(infer.SERVER)


@server.get("/v2/health/live", operation_id="v2_live", response_model=schemas.Object)
async def live() -> Response:
    """Tells whether the process runs."""
    return JSONResponse({"live": True})


@server.get(
    "/v2/health/ready",
    operation_id="v2_ready",
    response_model=schemas.Object,
    responses={503: {"model": schemas.Object, "description": "Not ready; try again later."}},
)
async def ready(request: Request) -> Response:
    """Tells whether every model serves."""
    is_ready = request.app.state.plane.ready()
    return JSONResponse({"ready": is_ready}, 200 if is_ready else 503)
