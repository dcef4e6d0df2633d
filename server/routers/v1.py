"""Everything under /v1/: TensorFlow Serving's REST API, and lookups."""

from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Match
from starlette.types import Receive, Scope, Send

from ..dependencies import RUN_SCOPES, DataPlane, Lease
from ..errors import ServingError
from ..request import RECORD, Answer, Headers, ModelSpec
from ..services import examples, lookup, models, predict
from ..tensors import CLASSIFY_METHOD, REGRESS_METHOD
from ..wire.paths import PREFIX, Layout, layout_of, malformed, parse_path
from . import schemas
from .body import AnswerResponse, describe, run
from .openapi import INT64, LOOKUP_QUERY, TIMEOUT, model_openapi
from .routing import ModelRouter, path_of, with_query

_ALLOWED_HEADERS = b"authorization, content-type, x-api-key, x-request-id, x-request-timeout-ms"

router = ModelRouter("/v1", ("/versions/{version}", "/labels/{label}"))


@router.on(
    "POST",
    ":predict",
    "predict",
    schemas.PredictAnswer,
    "PredictBody",
    {
        "rows": {"instances": [{"user": 7, "item": 42}, {"user": 8, "item": 42}]},
        "columns": {"inputs": {"user": [7, 8], "item": [42, 42]}},
        "bytes": {"instances": [{"b64": "aGVsbG8="}]},
    },
    [INT64, TIMEOUT],
)
async def run_predict(request: Request) -> Response:
    """Runs any signature on tensors."""
    return await run(request, RUN_SCOPES, predict.predict, layout=_layout(request))


@router.on(
    "POST",
    ":lookup",
    "lookup",
    schemas.LookupAnswer,
    "LookupBody",
    {
        "rows": {"table": "user", "ids": [7, "9007199254740993"]},
        "pooled": {"table": "user", "ids": [[7, 8], [9]], "combiner": "mean", "missing": "null"},
    },
    [*LOOKUP_QUERY, TIMEOUT],
    binary=True,
)
async def run_lookup(request: Request) -> Response:
    """Returns the embeddings of ids, one per id or one per bag of ids."""
    return await run(request, ("lookup",), lookup.lookup, layout=_layout(request))


@router.on(
    "POST",
    ":classify",
    "classify",
    schemas.ExamplesAnswer,
    "ExamplesBody",
    {"examples": {"examples": [{"age": 20, "tags": ["a", "b"]}]}},
    [TIMEOUT],
)
async def run_classify(request: Request) -> Response:
    """Returns labels and scores for examples."""
    return await run(request, RUN_SCOPES, examples.examples, method=CLASSIFY_METHOD)


@router.on(
    "POST",
    ":regress",
    "regress",
    schemas.ExamplesAnswer,
    "ExamplesBody",
    {"examples": {"examples": [{"age": 20}], "context": {"query": "pizza"}}},
    [TIMEOUT],
)
async def run_regress(request: Request) -> Response:
    """Returns one value per example."""
    return await run(request, RUN_SCOPES, examples.examples, method=REGRESS_METHOD)


@router.on("GET", "", "model_status", schemas.ModelStatus)
async def status(request: Request) -> Response:
    """Describes the model's versions."""
    return await describe(request, ("predict",), models.status)


@router.on("GET", "/metadata", "model_metadata", schemas.Object)
async def metadata(request: Request) -> Response:
    """Describes the model's signatures."""
    return await describe(request, ("predict",), models.metadata)


@router.on("GET", "/tables", "tables", schemas.Tables)
@router.on("GET", "/tables/{table}", "table", schemas.Table)
async def tables(request: Request) -> Response:
    """Describes the model's tables, or one of them."""
    table = request.path_params.get("table")
    return await describe(request, ("lookup",), models.tables, table)


@router.on("GET", "/openapi.json", "model_document", schemas.Object)
async def document(request: Request) -> Response:
    """Describes the inputs and outputs of the model's signatures."""
    return await describe(request, ("predict",), _document)


async def _document(plane: DataPlane, spec: ModelSpec) -> tuple[dict[str, Any], int]:
    async with Lease(plane, spec) as servable:
        return model_openapi(spec.name, servable.signatures), servable.version


class _Rest(BaseRoute):
    """The route of all other requests under /v1/, with any method.

    It answers a browser's preflight request, and refuses others in TensorFlow Serving's words.
    """

    path = "/v1/{rest:path}"

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        if scope["type"] == "http" and path_of(scope)[: len(PREFIX)].lower() == PREFIX:
            return Match.FULL, {"endpoint": self.handle, "route": self, "path_params": {}}
        return Match.NONE, {}

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        record, asked = scope[RECORD], scope["method"]
        is_preflight = asked == "OPTIONS" and b"origin" in record.headers
        path = record.path + (b"?" + record.query if record.query else b"")
        if is_preflight or asked == "POST":
            path = with_query(record.path, record.query)
        if not is_preflight:
            parse_path(asked, path)
            raise malformed(asked, path)
        for method in ("POST", "GET"):
            try:
                parse_path(method, path)
            except ServingError as error:
                refusal = error
                continue
            methods = f"{method}, OPTIONS".encode()
            headers: Headers = ((b"allow", methods),)
            if scope["app"].state.plane.settings.cors_origin:
                headers += (
                    (b"access-control-allow-methods", methods),
                    (b"access-control-allow-headers", _ALLOWED_HEADERS),
                )
            await AnswerResponse(Answer(b"", None, "", headers))(scope, receive, send)
            return
        raise ServingError(refusal.code, refusal.message.replace("GET", "OPTIONS", 1))


router.routes.append(_Rest())


def _layout(request: Request) -> Layout:
    record = request.scope[RECORD]
    headers, query = record.headers, record.query
    return layout_of(headers.get(b"content-type", b""), headers.get(b"accept", b""), query)
