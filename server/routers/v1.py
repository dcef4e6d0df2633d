"""Everything under /v1/: TensorFlow Serving's REST API, and lookups."""

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match
from starlette.types import Receive, Scope, Send

from ..dataplane import examples, lookup, models, predict
from ..dataplane.answer import Answer, Headers
from ..dataplane.plane import RUN_SCOPES, DataPlane
from ..engines.base import ModelSpec
from ..errors import ServingError
from ..request import RECORD
from ..wire.media import Layout, layout_of
from ..wire.paths import PREFIX, malformed, parse_path
from . import schemas
from .body import describe, run
from .openapi import INT64, LOOKUP_QUERY, TIMEOUT, Operation
from .openapi_model import model_openapi
from .responses import AnswerResponse
from .routing import ModelRoute, path_of, with_query

_Endpoint = TypeVar("_Endpoint", bound=Callable[[Request], Awaitable[Response]])
_ALLOWED_HEADERS = "authorization, content-type, x-api-key, x-request-id, x-request-timeout-ms"

router = APIRouter(route_class=ModelRoute)


def _route(method: str, end: str, operation: Operation) -> Callable[[_Endpoint], _Endpoint]:
    """Registers an endpoint for the latest version, for a version's number and for its label."""

    def register(endpoint: _Endpoint) -> _Endpoint:
        for choice in ("", "/versions/{version}", "/labels/{label}"):
            path = f"/v1/models/{{model}}{choice}{end}"
            router.add_api_route(path, endpoint, methods=[method], **operation.at(path))
        return endpoint

    return register


@_route(
    "POST",
    ":predict",
    Operation(
        "predict",
        "Run a signature",
        schemas.PredictAnswer,
        {"rows": {"predictions": [0.5, 0.25]}, "columns": {"outputs": [0.5, 0.25]}},
        "PredictBody",
        {
            "rows": {"instances": [{"user": 7, "item": 42}, {"user": 8, "item": 42}]},
            "columns": {"inputs": {"user": [7, 8], "item": [42, 42]}},
            "bytes": {"instances": [{"b64": "aGVsbG8="}]},
        },
        [INT64, TIMEOUT],
    ),
)
async def run_predict(request: Request) -> Response:
    """Runs any signature on tensors."""
    return await run(request, RUN_SCOPES, predict.predict, layout=_layout(request))


@_route(
    "POST",
    ":lookup",
    Operation(
        "lookup",
        "Look up embeddings in a table",
        schemas.LookupAnswer,
        {
            "rows": {"embeddings": [[0.5, 1.0], [0.0, 0.0]], "found": [True, False]},
            "pooled": {"embeddings": [[0.5, 1.0], None], "found": [[True, False], [False]]},
        },
        "LookupBody",
        {
            "rows": {"table": "user", "ids": [7, "9007199254740993"]},
            "pooled": {
                "table": "user",
                "ids": [[7, 8], [9]],
                "combiner": "mean",
                "missing": "null",
            },
        },
        [*LOOKUP_QUERY, TIMEOUT],
        binary=True,
    ),
)
async def run_lookup(request: Request) -> Response:
    """Returns the embeddings of ids, one per id or one per bag of ids."""
    return await run(request, ("lookup",), lookup.lookup, layout=_layout(request))


@_route(
    "POST",
    ":classify",
    Operation(
        "classify",
        "Classify examples",
        schemas.ExamplesAnswer,
        {"labels": {"results": [[["car", 0.75], ["bike", 0.25]]]}},
        "ExamplesBody",
        {"examples": {"examples": [{"age": 20, "tags": ["a", "b"]}]}},
        [TIMEOUT],
    ),
)
async def run_classify(request: Request) -> Response:
    """Returns labels and scores for examples."""
    return await run(request, RUN_SCOPES, examples.classify)


@_route(
    "POST",
    ":regress",
    Operation(
        "regress",
        "Regress examples",
        schemas.ExamplesAnswer,
        {"values": {"results": [0.25]}},
        "ExamplesBody",
        {"examples": {"examples": [{"age": 20}], "context": {"query": "pizza"}}},
        [TIMEOUT],
    ),
)
async def run_regress(request: Request) -> Response:
    """Returns one value per example."""
    return await run(request, RUN_SCOPES, examples.regress)


_STATUS = {"error_code": "OK", "error_message": ""}
_TABLE = {"table": "user", "dim": 16, "rows": 1000, "key_dtype": "int64"}


@_route(
    "GET",
    "",
    Operation(
        "model_status",
        "State of the model's versions",
        schemas.ModelStatus,
        {
            "one": {
                "model_version_status": [{"version": "1", "state": "AVAILABLE", "status": _STATUS}]
            }
        },
    ),
)
async def status(request: Request) -> Response:
    """Describes the model's versions."""
    return await describe(request, ("predict",), models.status)


@_route(
    "GET",
    "/metadata",
    Operation("model_metadata", "Signatures of the model", schemas.Object, {}),
)
async def metadata(request: Request) -> Response:
    """Describes the model's signatures."""
    return await describe(request, ("predict",), models.metadata)


@_route(
    "GET",
    "/tables",
    Operation(
        "tables", "Embedding tables of the model", schemas.Tables, {"one": {"tables": [_TABLE]}}
    ),
)
@_route(
    "GET",
    "/tables/{table}",
    Operation("table", "One embedding table", schemas.Table, {"one": _TABLE}),
)
async def tables(request: Request) -> Response:
    """Describes the model's tables, or one of them."""
    table = request.path_params.get("table")
    return await describe(request, ("lookup",), models.tables, table)


@_route(
    "GET",
    "/openapi.json",
    Operation("model_document", "The OpenAPI document of this model", schemas.Object, {}),
)
async def document(request: Request) -> Response:
    """Describes the inputs and outputs of the model's signatures."""
    return await describe(request, ("predict",), _document)


async def _document(plane: DataPlane, spec: ModelSpec) -> Answer:
    with await plane.lease(spec) as servable:
        return Answer(model_openapi(spec.name, servable.signatures), servable.version)


class _Rest(ModelRoute):
    """The route of all other requests under /v1/, with any method."""

    def __init__(self, path: str, endpoint: Any, **options: Any) -> None:
        super(ModelRoute, self).__init__(path, endpoint, **options)

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        if scope["type"] == "http" and path_of(scope)[: len(PREFIX)].lower() == PREFIX:
            return Match.FULL, {"endpoint": self.endpoint, "route": self, "path_params": {}}
        return Match.NONE, {}

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        response = await self.endpoint(Request(scope, receive, send))
        await response(scope, receive, send)


async def rest(request: Request) -> Response:
    """Answers a browser's preflight request. Refuses others in TensorFlow Serving's words."""
    record = request.scope[RECORD]
    path = with_query(request.method, record.path, record.query)
    if request.method != "OPTIONS":
        parse_path(request.method, path)
    if request.method != "OPTIONS" or b"origin" not in record.headers:
        raise malformed(request.method, path)
    for method in ("POST", "GET"):
        try:
            parse_path(method, path)
        except ServingError as error:
            refusal = error
        else:
            return AnswerResponse(Answer(b"", None, "", _preflight(request, method)))
    raise ServingError(refusal.code, refusal.message.replace("GET", "OPTIONS", 1))


router.add_api_route("/v1/{rest:path}", rest, include_in_schema=False, route_class_override=_Rest)


def _preflight(request: Request, method: str) -> Headers:
    allowed: Headers = (("allow", f"{method}, OPTIONS"),)
    if not request.app.state.cors_origin:
        return allowed
    return (
        *allowed,
        ("access-control-allow-methods", f"{method}, OPTIONS"),
        ("access-control-allow-headers", _ALLOWED_HEADERS),
    )


def _layout(request: Request) -> Layout:
    record = request.scope[RECORD]
    headers, query = record.headers, record.query
    return layout_of(headers.get(b"content-type", b""), headers.get(b"accept", b""), query)
