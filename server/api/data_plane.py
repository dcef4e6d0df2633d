"""Everything under /v1/: TensorFlow Serving's REST API, and lookups beside it."""

from urllib.parse import parse_qs

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from server.api.body import ClientGoneError, SlowBodyError, read_body
from server.api.raw_route import raw_path
from server.api.request_info import RequestInfo, request_info
from server.api.responses import answer_response, error_response, serving_error_response
from server.engines.base import Engine, ModelSpec
from server.errors import PRIVATE_CODES, ServingError
from server.handlers import examples, lookup, models, predict
from server.handlers.answer import Answer
from server.observability.logs import LOG
from server.settings import Settings
from server.wire.limits import Limits
from server.wire.paths import Route, parse_path


class DataPlane:
    """ASGI application of the data plane; parses paths itself, see `wire.paths`."""

    def __init__(self, settings: Settings, engine: Engine) -> None:
        """Makes the application; `engine` is started by whoever owns it."""
        self._engine = engine
        self._body_seconds = settings.body_seconds
        self._cors_origin = settings.cors_origin
        self._limits = Limits(
            max_rank=settings.max_rank,
            max_elements=settings.max_elements,
            max_ids=settings.max_ids,
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one request."""
        info = request_info(scope)
        try:
            response = await self._respond(scope, receive, info)
        except ServingError as error:
            if error.code in PRIVATE_CODES:
                LOG.error("%s", error.message, extra={"request_id": info.request_id})
            response = serving_error_response(error, info.request_id)
        except SlowBodyError:
            response = error_response(
                408,
                f"Request body must arrive within {self._body_seconds:g} seconds",
                {"connection": "close"},
            )
        except ClientGoneError:
            info.status = 499
            return
        if self._cors_origin:
            response.headers["access-control-allow-origin"] = self._cors_origin
        await response(scope, receive, send)

    async def _respond(self, scope: Scope, receive: Receive, info: RequestInfo) -> Response:
        method: str = scope["method"]
        path = raw_path(scope)
        if method == "OPTIONS":
            return self._options(path)
        route = parse_path(method, path)
        info.verb, info.model = route.verb, route.model
        spec = ModelSpec(route.model, route.version, route.label)
        if method == "GET":
            return answer_response(await self._describe(route, spec))
        body = await read_body(receive, self._body_seconds)
        return answer_response(await self._infer(route, spec, body, scope["query_string"]))

    async def _describe(self, route: Route, spec: ModelSpec) -> Answer:
        if route.verb == "metadata":
            return await models.metadata(self._engine, spec)
        if route.verb == "tables":
            return await models.tables(self._engine, spec, route.table)
        return await models.status(self._engine, spec)

    async def _infer(self, route: Route, spec: ModelSpec, body: bytes, query: bytes) -> Answer:
        if route.verb == "predict":
            as_string = bool(query) and parse_qs(query).get(b"int64") == [b"string"]
            return await predict.predict(
                self._engine, spec, body, self._limits, int64_as_string=as_string
            )
        if route.verb == "lookup":
            return await lookup.lookup(self._engine, spec, body, self._limits)
        if route.verb == "classify":
            return await examples.classify(self._engine, spec, body, self._limits)
        return await examples.regress(self._engine, spec, body, self._limits)

    def _options(self, path: bytes) -> Response:
        """Answers a browser's question whether it may call, for any path that means something."""
        for method in ("POST", "GET"):
            try:
                parse_path(method, path)
            except ServingError as error:
                refusal = error
            else:
                headers = {"allow": f"{method}, OPTIONS"}
                if self._cors_origin:
                    headers["access-control-allow-methods"] = f"{method}, OPTIONS"
                    headers["access-control-allow-headers"] = "authorization, content-type"
                return Response(status_code=200, headers=headers)
        raise ServingError(refusal.code, refusal.message.replace("GET", "OPTIONS", 1))
