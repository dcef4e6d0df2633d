"""Everything under /v2: the Open Inference Protocol."""

import orjson
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from server import __version__
from server.dataplane import infer
from server.dataplane.lifecycle import Lifecycle
from server.edge.http.exchange import Exchange, Guard
from server.edge.http.responses import answer_response, json_response
from server.engines.base import Engine, ModelSpec
from server.wire.limits import Limits
from server.wire.paths import parse_v2_path

_SERVER = orjson.dumps({"name": "embedding-gateway", "version": __version__, "extensions": []})


class V2Plane:
    """ASGI application of the Open Inference Protocol."""

    def __init__(self, engine: Engine, guard: Guard, limits: Limits, lifecycle: Lifecycle) -> None:
        """Makes the application; `engine` is started by whoever owns it."""
        self._engine = engine
        self._guard = guard
        self._limits = limits
        self._lifecycle = lifecycle

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one request."""
        await self._guard.run(scope, receive, send, self._respond)

    async def _respond(self, exchange: Exchange) -> Response:
        if exchange.method == "GET" and (response := self._server(exchange.path)):
            return response
        route = parse_v2_path(exchange.method, exchange.path)
        exchange.info.verb, exchange.info.model = route.verb, route.model
        exchange.authorize("predict")
        spec = ModelSpec(route.model, route.version, route.label)
        body = await exchange.body()
        if route.verb == "infer":
            answer = await exchange.answer(
                lambda: infer.infer(self._engine, spec, body, self._limits)
            )
        else:
            tell = infer.ready if route.verb == "ready" else infer.describe
            answer = await exchange.answer(lambda: tell(self._engine, spec))
        return answer_response(answer)

    def _server(self, path: bytes) -> Response | None:
        if path in (b"/v2", b"/v2/"):
            return json_response(_SERVER)
        if path == b"/v2/health/live":
            return json_response(orjson.dumps({"live": True}))
        if path == b"/v2/health/ready":
            ready = self._engine.ready() and not self._lifecycle.draining
            return json_response(orjson.dumps({"ready": ready}), 200 if ready else 503)
        return None
