"""The page at /ui and its data. One file without external assets, so it works offline."""

import functools
from importlib.resources import files
from urllib.parse import parse_qsl

import orjson

from ... import __version__
from ...dataplane.answer import Answer
from ...dataplane.snapshot import Snapshots
from ...errors import Code, ServingError
from ...observability.live import LiveView
from ...request import Request
from .front import Ask
from .responses import RawHeaders

PREFIX = b"/ui"

# The page may load nothing from anywhere, and be framed by nobody.
_HEADERS = (
    (
        "content-security-policy",
        "default-src 'none'; style-src 'unsafe-inline'; "
        "script-src 'unsafe-inline'; connect-src 'self'; img-src data:; base-uri 'none'; "
        "form-action 'none'; frame-ancestors 'none'",
    ),
    ("x-content-type-options", "nosniff"),
    ("referrer-policy", "no-referrer"),
    ("cache-control", "no-cache"),
)


class Page:
    """The page and its data."""

    def __init__(self, live: LiveView, snapshots: Snapshots) -> None:
        """Creates the page."""
        self._live = live
        self._snapshots = snapshots
        #: Headers of every answer.
        self.headers: RawHeaders = []

    def read(self, request: Request) -> None:
        """Reads nothing: few requests repeat."""

    async def respond(self, request: Request, asked: None, ask: Ask) -> Answer:  # noqa: ARG002
        """Answers one request."""
        request.verb = "page"
        if request.method == "GET":
            if request.path in (b"/ui", b"/ui/"):
                return Answer(_page(), None, "text/html; charset=utf-8", _HEADERS)
            if request.path == b"/ui/data":
                return Answer(await ask((), self._data))
            if request.path == b"/ui/sample":
                query = dict(parse_qsl(request.query.decode("latin-1")))
                return Answer(await ask(("lookup",), lambda _: self._sample(query)))
        raise ServingError(Code.NOT_FOUND, "There is only the page: GET /ui")

    async def _data(self, _: bytes) -> bytes:
        models = await self._snapshots.models()
        return orjson.dumps(
            {"version": __version__, "models": models, "seconds": self._live.points()}
        )

    async def _sample(self, query: dict[str, str]) -> bytes:
        ids = self._live.sample(query.get("model", ""), query.get("table", ""))
        # Send ids as strings: JavaScript's numbers are doubles, which cannot hold every 64-bit id.
        return orjson.dumps({"ids": [str(each) for each in ids]})


@functools.cache
def _page() -> bytes:
    return files(__package__).joinpath("page.html").read_bytes()
