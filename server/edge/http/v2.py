"""Everything under /v2: the Open Inference Protocol."""

import orjson
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from server.dataplane import infer
from server.dataplane.answer import Answer
from server.dataplane.lifecycle import Lifecycle
from server.dataplane.plane import RUN_SCOPES
from server.edge.http.exchange import Ask, HttpEdge
from server.edge.http.responses import answer_response, json_response
from server.engines.base import ModelSpec
from server.request import Request
from server.wire.json_text import parse_json
from server.wire.oip import HEADER
from server.wire.paths import parse_v2_path

_SERVER = orjson.dumps(infer.SERVER)
_HEADER = HEADER.encode()


class V2Plane:
    """ASGI application of the Open Inference Protocol."""

    def __init__(self, edge: HttpEdge, lifecycle: Lifecycle) -> None:
        """Creates the application; `lifecycle` says whether the gateway takes traffic."""
        self._edge = edge
        self._plane = edge.plane
        self._lifecycle = lifecycle

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one request."""
        await self._edge.run(scope, receive, send, self._respond)

    async def _respond(self, request: Request, ask: Ask) -> Response:
        if request.method == "GET" and (response := self._server(request.path)):
            return response
        route = parse_v2_path(request.method, request.path)
        request.verb, request.model = route.verb, route.model
        spec = ModelSpec(route.model, route.version, route.label)
        if route.verb == "infer":
            return answer_response(
                await ask(
                    RUN_SCOPES,
                    lambda body: infer.infer(self._plane, spec, body, request.headers.get(_HEADER)),
                )
            )
        work = self._index if route.verb == "index" else lambda _: self._describe(route.verb, spec)
        return answer_response(await ask(("predict",), work))

    async def _describe(self, verb: str, spec: ModelSpec) -> Answer:
        if verb == "ready":
            version = await infer.ready(self._plane, spec)
            return Answer(orjson.dumps({"name": spec.name, "ready": True}), version)
        describe = infer.config if verb == "config" else infer.metadata
        told, version = await describe(self._plane, spec)
        return Answer(orjson.dumps(told), version)

    async def _index(self, body: bytes) -> Answer:
        wanted = parse_json(body) if body else {}
        listed = await infer.repository_index(self._plane, ready=wanted.get("ready") is True)
        return Answer(orjson.dumps(listed))

    def _server(self, path: bytes) -> Response | None:
        if path in (b"/v2", b"/v2/"):
            return json_response(_SERVER)
        if path == b"/v2/health/live":
            return json_response(orjson.dumps({"live": True}))
        if path == b"/v2/health/ready":
            ready = self._plane.engine.ready() and not self._lifecycle.draining
            return json_response(orjson.dumps({"ready": ready}), 200 if ready else 503)
        return None
