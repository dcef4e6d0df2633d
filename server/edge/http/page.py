"""The page at /ui and its data. One file without external assets, so it works offline."""

import functools
from importlib.resources import files
from urllib.parse import parse_qsl

import orjson
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from server import __version__
from server.dataplane.snapshot import Snapshots
from server.edge.http.exchange import Ask, HttpEdge
from server.edge.http.responses import json_response
from server.errors import Code, ServingError
from server.observability.live import LiveView
from server.request import Request

PREFIX = b"/ui"

# The page may load nothing from other places, and no other page may frame it.
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

    def __init__(self, edge: HttpEdge, live: LiveView, snapshots: Snapshots) -> None:
        """Creates the application."""
        self._edge = edge
        self._live = live
        self._snapshots = snapshots

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one request."""
        await self._edge.run(scope, receive, send, self._respond)

    async def _respond(self, request: Request, ask: Ask) -> Response:
        request.verb = "page"
        if request.method == "GET":
            if request.path in (b"/ui", b"/ui/"):
                return Response(_page(), headers=_HEADERS, media_type="text/html")
            if request.path == b"/ui/data":
                return json_response(await ask((), self._data))
            if request.path == b"/ui/sample":
                query = dict(parse_qsl(request.query.decode("latin-1")))
                return json_response(await ask(("lookup",), lambda _: self._sample(query)))
        raise ServingError(Code.NOT_FOUND, "There is only the page: GET /ui")

    async def _data(self, _: bytes) -> bytes:
        models = await self._snapshots.models()
        return orjson.dumps(
            {"version": __version__, "models": models, "seconds": self._live.points()}
        )

    async def _sample(self, query: dict[str, str]) -> bytes:
        ids = self._live.sample(query.get("model", ""), query.get("table", ""))
        # As strings: the page's numbers are doubles.
        return orjson.dumps({"ids": [str(each) for each in ids]})


@functools.cache
def _page() -> bytes:
    return files("server.edge.http").joinpath("page.html").read_bytes()
