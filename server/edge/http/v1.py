"""Everything under /v1/: TensorFlow Serving's REST API, and lookups beside it."""

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from server.dataplane import examples, lookup, models, predict
from server.dataplane.answer import Answer
from server.edge.http.exchange import Exchange, Guard
from server.edge.http.openapi_model import model_openapi
from server.edge.http.responses import answer_response
from server.engines.base import Engine, ModelSpec
from server.errors import ServingError
from server.wire.limits import Limits
from server.wire.media import layout_of
from server.wire.paths import Route, parse_path

_LOOKUP_VERBS = ("lookup", "tables")
_ALLOWED_HEADERS = "authorization, content-type, x-api-key, x-request-id, x-request-timeout-ms"


class DataPlane:
    """ASGI application of the data plane; parses paths itself, see `wire.paths`."""

    def __init__(self, engine: Engine, guard: Guard, limits: Limits, cors_origin: str) -> None:
        """Makes the application; `engine` is started by whoever owns it."""
        self._engine = engine
        self._guard = guard
        self._limits = limits
        self._headers = {"access-control-allow-origin": cors_origin} if cors_origin else {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one request."""
        await self._guard.run(scope, receive, send, self._respond, self._headers)

    async def _respond(self, exchange: Exchange) -> Response:
        if exchange.method == "OPTIONS":
            return self._options(exchange.path)
        route = parse_path(exchange.method, exchange.path)
        exchange.info.verb, exchange.info.model = route.verb, route.model
        exchange.authorize("lookup" if route.verb in _LOOKUP_VERBS else "predict")
        spec = ModelSpec(route.model, route.version, route.label)
        body = await exchange.body()
        if exchange.method == "GET":
            return answer_response(await exchange.answer(lambda: self._describe(route, spec)))
        return answer_response(
            await exchange.answer(lambda: self._infer(route, spec, body, exchange))
        )

    async def _describe(self, route: Route, spec: ModelSpec) -> Answer:
        if route.verb == "metadata":
            return await models.metadata(self._engine, spec)
        if route.verb == "tables":
            return await models.tables(self._engine, spec, route.table)
        if route.verb == "openapi":
            async with self._engine.lease(spec) as servable:
                return Answer(model_openapi(spec.name, servable.signatures), servable.version)
        return await models.status(self._engine, spec)

    async def _infer(
        self, route: Route, spec: ModelSpec, body: bytes, exchange: Exchange
    ) -> Answer:
        if route.verb == "classify":
            return await examples.classify(self._engine, spec, body, self._limits)
        if route.verb == "regress":
            return await examples.regress(self._engine, spec, body, self._limits)
        layout = layout_of(
            exchange.headers.get(b"content-type"), exchange.headers.get(b"accept"), exchange.query
        )
        answer = predict.predict if route.verb == "predict" else lookup.lookup
        return await answer(self._engine, spec, body, self._limits, layout)

    def _options(self, path: bytes) -> Response:
        """Answers a browser's question whether it may call, for any path that means something."""
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
