"""Everything under /v1/: TensorFlow Serving's REST API, and lookups."""

import functools
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import NamedTuple

from ...dataplane import examples, lookup, models, predict
from ...dataplane.answer import Answer, Headers
from ...dataplane.plane import RUN_SCOPES, DataPlane
from ...engines.base import ModelSpec
from ...errors import ServingError
from ...request import Request
from ...wire.media import PARAMETERS, Layout, layout_of
from ...wire.paths import Route, malformed, parse_path
from .front import Ask
from .openapi_model import model_openapi
from .responses import RawHeaders

_Run = Callable[[DataPlane, ModelSpec, bytes, Layout], Awaitable[Answer]]
_RUNS: Mapping[str, _Run] = {
    "predict": predict.predict,
    "lookup": lookup.lookup,
    "classify": examples.classify,
    "regress": examples.regress,
}
# The result of parsing a head is cached if the head has at most this many bytes. Longer heads are
# parsed each time, because they would fill the memory of the cache.
_REMEMBERED_BYTES = 256
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

    def read(self, request: Request) -> "_Asked | None":
        """Reads a head; returns None for a preflight request."""
        if request.method == "OPTIONS":
            return None
        headers = request.headers
        path, query = request.path, request.query
        kind, accept = headers.get(b"content-type", b""), headers.get(b"accept", b"")
        is_short = len(path) + len(query) + len(kind) + len(accept) <= _REMEMBERED_BYTES
        parse = _parse if is_short else _parse.__wrapped__
        return parse(request.method, path, query, kind, accept)

    async def respond(self, request: Request, asked: "_Asked | None", ask: Ask) -> Answer:
        """Answers one request."""
        if asked is None:
            return self._options(request)
        route, spec, layout, scopes, run = asked
        request.verb, request.model = route.verb, route.model
        answer: Answer
        if run is None:
            answer = await ask(scopes, lambda _: self._describe(route, spec))
        else:
            answer = await ask(scopes, lambda body: run(self._plane, spec, body, layout))
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
        with await plane.lease(spec) as servable:
            return Answer(model_openapi(spec.name, servable.signatures), servable.version)

    def _options(self, request: Request) -> Answer:
        """Answers a browser's CORS preflight request, for any path that the API knows."""
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


class _Asked(NamedTuple):
    """The parsed head of a request.

    Attributes:
        route: The parsed path.
        spec: The model.
        layout: The formats of request and answer.
        scopes: The client's key needs one of these.
        run: Answers requests with a body; None for descriptions.
    """

    route: Route
    spec: ModelSpec
    layout: Layout
    scopes: Sequence[str]
    run: _Run | None


@functools.lru_cache(maxsize=512)
def _parse(method: str, path: bytes, query: bytes, content_type: bytes, accept: bytes) -> _Asked:
    """Parses the head of a request; raises as `parse_path`.

    TensorFlow Serving has no query parameters. The query is part of the path there, and here too
    unless all its parameters are known.
    """
    layout = layout_of(content_type, accept, query)
    names = layout.query.keys()
    if query and not (method == "POST" and names and names <= PARAMETERS):
        path += b"?" + query
    route = parse_path(method, path)
    run = _RUNS.get(route.verb)
    scopes = RUN_SCOPES if run else ("predict",)
    if route.verb in ("lookup", "tables"):
        scopes = ("lookup",)
    return _Asked(route, ModelSpec(route.model, route.version, route.label), layout, scopes, run)
