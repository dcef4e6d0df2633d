"""The page at /ui, and what it asks for. One file without outside assets: it works offline."""

import functools
from importlib.resources import files
from urllib.parse import parse_qsl

import orjson
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from server import __version__
from server.dataplane.snapshot import Snapshots
from server.edge.http.exchange import Exchange, Guard
from server.edge.http.responses import json_response
from server.engines.base import Engine
from server.errors import Code, ServingError
from server.observability.live import LiveView

PREFIX = b"/ui"

# The page may load nothing from anywhere, and be framed by nobody.
_HEADERS = {
    "content-security-policy": "default-src 'none'; style-src 'unsafe-inline'; "
    "script-src 'unsafe-inline'; connect-src 'self'; img-src data:; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-cache",
}


class Page:
    """ASGI application of the page."""

    def __init__(self, engine: Engine, guard: Guard, live: LiveView, snapshots: Snapshots) -> None:
        """Makes the application."""
        self._engine = engine
        self._guard = guard
        self._live = live
        self._snapshots = snapshots

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one request."""
        await self._guard.run(scope, receive, send, self._respond)

    async def _respond(self, exchange: Exchange) -> Response:
        exchange.info.verb = "page"
        if exchange.method != "GET":
            raise ServingError(Code.NOT_FOUND, "There is only the page: GET /ui")
        if exchange.path in (b"/ui", b"/ui/"):
            return Response(_page(), headers=_HEADERS, media_type="text/html")
        exchange.authorize("")
        await exchange.body()
        if exchange.path == b"/ui/data":
            models = await exchange.answer(self._snapshots.models)
            data = {"version": __version__, "models": models, "seconds": self._live.points()}
            return json_response(orjson.dumps(data))
        if exchange.path == b"/ui/sample":
            query = dict(parse_qsl(exchange.query.decode("latin-1")))
            ids = self._live.sample(query.get("model", ""), query.get("table", ""))
            # As strings: the page's numbers are doubles.
            return json_response(orjson.dumps({"ids": [str(each) for each in ids]}))
        raise ServingError(Code.NOT_FOUND, "There is only the page: GET /ui")


@functools.cache
def _page() -> bytes:
    return files("server.edge.http").joinpath("page.html").read_bytes()
