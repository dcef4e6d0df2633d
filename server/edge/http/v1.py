"""Everything under /v1/: TensorFlow Serving's REST API, and lookups."""

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from server.dataplane import examples, lookup, models, predict
from server.dataplane.answer import Answer
from server.dataplane.plane import RUN_SCOPES
from server.edge.http.exchange import Ask, HttpEdge
from server.edge.http.openapi_model import model_openapi
from server.edge.http.responses import answer_response
from server.engines.base import ModelSpec
from server.errors import ServingError
from server.request import Request
from server.wire.media import PARAMETERS, Layout, layout_of
from server.wire.paths import Route, malformed, parse_path

_SCOPES = {
    "lookup": ("lookup",),
    "tables": ("lookup",),
    "predict": RUN_SCOPES,
    "classify": RUN_SCOPES,
    "regress": RUN_SCOPES,
}
_ALLOWED_HEADERS = "authorization, content-type, x-api-key, x-request-id, x-request-timeout-ms"


class V1:
    """ASGI application of TensorFlow Serving's API; parses paths itself, see `wire.paths`."""

    def __init__(self, edge: HttpEdge, cors_origin: str) -> None:
        """Creates the application; `cors_origin` may call it from browsers, if given."""
        self._edge = edge
        self._plane = edge.plane
        self._headers = {"access-control-allow-origin": cors_origin} if cors_origin else {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one request."""
        await self._edge.run(scope, receive, send, self._respond, self._headers)

    async def _respond(self, request: Request, ask: Ask) -> Response:
        if request.method == "OPTIONS":
            return self._options(request)
        route = parse_path(request.method, _whole_path(request))
        request.verb, request.model = route.verb, route.model
        spec = ModelSpec(route.model, route.version, route.label)
        return answer_response(
            await ask(
                _SCOPES.get(route.verb, ("predict",)),
                lambda body: self._answer(route, spec, body, request),
            )
        )

    async def _answer(self, route: Route, spec: ModelSpec, body: bytes, request: Request) -> Answer:
        plane = self._plane
        match route.verb:
            case "status":
                return await models.status(plane.engine, spec)
            case "metadata":
                return await models.metadata(plane, spec)
            case "tables":
                return await models.tables(plane, spec, route.table)
            case "openapi":
                async with plane.lease(spec) as servable:
                    return Answer(model_openapi(spec.name, servable.signatures), servable.version)
            case "classify":
                return await examples.classify(plane, spec, body)
            case "regress":
                return await examples.regress(plane, spec, body)
        layout = _layout(request)
        answer = predict.predict if route.verb == "predict" else lookup.lookup
        return await answer(plane, spec, body, layout)

    def _options(self, request: Request) -> Response:
        """Answers a browser's CORS preflight request for any valid path."""
        path = _whole_path(request)
        if b"origin" not in request.headers:
            raise malformed("OPTIONS", path)
        for method in ("POST", "GET"):
            try:
                parse_path(method, path)
            except ServingError as error:
                refusal = error
            else:
                headers = {"allow": f"{method}, OPTIONS"}
                if self._headers:
                    headers["access-control-allow-methods"] = f"{method}, OPTIONS"
                    headers["access-control-allow-headers"] = _ALLOWED_HEADERS
                return Response(status_code=200, headers=headers)
        raise ServingError(refusal.code, refusal.message.replace("GET", "OPTIONS", 1))


def _layout(request: Request) -> Layout:
    headers = request.headers
    return layout_of(headers.get(b"content-type"), headers.get(b"accept"), request.query)


def _whole_path(request: Request) -> bytes:
    """Returns the path, followed by the query unless its parameters are known.

    TensorFlow Serving has no query parameters: the query is part of the path there.
    """
    if not request.query:
        return request.path
    names = _layout(request).query.keys()
    if request.method == "POST" and names and names <= PARAMETERS:
        return request.path
    return request.path + b"?" + request.query
