"""Everything under /v1/: TensorFlow Serving's REST API, and lookups."""

from collections.abc import Awaitable, Callable, Mapping

from server.dataplane import examples, lookup, models, predict
from server.dataplane.answer import Answer, Headers
from server.dataplane.plane import RUN_SCOPES, DataPlane
from server.edge.http.front import Ask
from server.edge.http.openapi_model import model_openapi
from server.edge.http.responses import RawHeaders
from server.engines.base import ModelSpec
from server.errors import ServingError
from server.request import Request
from server.wire.media import PARAMETERS, Layout, layout_of
from server.wire.paths import Route, malformed, parse_path

_RUNS: Mapping[str, Callable[[DataPlane, ModelSpec, bytes, Layout], Awaitable[Answer]]] = {
    "predict": predict.predict,
    "lookup": lookup.lookup,
    "classify": examples.classify,
    "regress": examples.regress,
}
_ALLOWED_HEADERS = "authorization, content-type, x-api-key, x-request-id, x-request-timeout-ms"


class V1:
    """TensorFlow Serving's API; parses paths itself, see `wire.paths`."""

    def __init__(self, plane: DataPlane, cors_origin: str) -> None:
        """Creates the API. Browsers may call it from `cors_origin`, if one is given."""
        self._plane = plane
        #: Headers of every answer.
        self.headers: RawHeaders = []
        if cors_origin:
            self.headers.append((b"access-control-allow-origin", cors_origin.encode()))

    async def respond(self, request: Request, ask: Ask) -> Answer:
        """Answers one request."""
        if request.method == "OPTIONS":
            return self._options(request)
        headers = request.headers
        layout = layout_of(headers.get(b"content-type"), headers.get(b"accept"), request.query)
        route = parse_path(request.method, _whole_path(request, layout))
        request.verb, request.model = route.verb, route.model
        spec = ModelSpec(route.model, route.version, route.label)
        plane, run = self._plane, _RUNS.get(route.verb)
        answer: Answer
        if run is not None:
            scopes = ("lookup",) if route.verb == "lookup" else RUN_SCOPES
            answer = await ask(scopes, lambda body: run(plane, spec, body, layout))
        else:
            scopes = ("lookup",) if route.verb == "tables" else ("predict",)
            answer = await ask(scopes, lambda _: self._describe(route, spec))
        return answer

    async def _describe(self, route: Route, spec: ModelSpec) -> Answer:
        plane = self._plane
        match route.verb:
            case "status":
                return await models.status(plane.engine, spec)
            case "metadata":
                return await models.metadata(plane, spec)
            case "tables":
                return await models.tables(plane, spec, route.table)
        async with plane.lease(spec) as servable:
            return Answer(model_openapi(spec.name, servable.signatures), servable.version)

    def _options(self, request: Request) -> Answer:
        """Answers a browser's question whether it may call, for any path that means something."""
        path = request.path + b"?" + request.query if request.query else request.path
        if b"origin" not in request.headers:
            raise malformed("OPTIONS", path)
        for method in ("POST", "GET"):
            try:
                parse_path(method, path)
            except ServingError as error:
                refusal = error
            else:
                headers: Headers = (("allow", f"{method}, OPTIONS"),)
                if self.headers:
                    headers = (
                        *headers,
                        ("access-control-allow-methods", f"{method}, OPTIONS"),
                        ("access-control-allow-headers", _ALLOWED_HEADERS),
                    )
                return Answer(b"", media_type="", headers=headers)
        raise ServingError(refusal.code, refusal.message.replace("GET", "OPTIONS", 1))


def _whole_path(request: Request, layout: Layout) -> bytes:
    """Returns the path, and the query with it unless its parameters are known.

    TensorFlow Serving has no query parameters: the query is part of the path there.
    """
    if not request.query:
        return request.path
    names = layout.query.keys()
    if request.method == "POST" and names and names <= PARAMETERS:
        return request.path
    return request.path + b"?" + request.query
