"""Everything under /v2: the Open Inference Protocol."""

import functools
from collections.abc import Callable, Mapping

import orjson

from ...dataplane import infer
from ...dataplane.answer import Answer
from ...dataplane.lifecycle import Lifecycle
from ...dataplane.plane import RUN_SCOPES, DataPlane
from ...engines.base import ModelSpec
from ...request import Request
from ...wire.json_text import parse_json
from ...wire.oip import HEADER
from ...wire.paths import Route, parse_v2_path
from .front import Ask
from .responses import RawHeaders

_SERVER = orjson.dumps(infer.SERVER)
_LIVE = orjson.dumps({"live": True})
_HEADER = HEADER.encode()
# The result of parsing a path is cached if the path has at most this many bytes. Longer paths are
# parsed each time, because they would fill the memory of the cache.
_REMEMBERED_BYTES = 256


class V2:
    """The Open Inference Protocol."""

    def __init__(self, plane: DataPlane, lifecycle: Lifecycle) -> None:
        """Creates the API; `lifecycle` tells whether the gateway takes traffic."""
        self._plane = plane
        self._lifecycle = lifecycle
        #: Headers of every answer.
        self.headers: RawHeaders = []
        # Requests without a model, by their path.
        self._about_server: Mapping[bytes, Callable[[], Answer]] = {
            b"/v2": lambda: Answer(_SERVER),
            b"/v2/": lambda: Answer(_SERVER),
            b"/v2/health/live": lambda: Answer(_LIVE),
            b"/v2/health/ready": self._ready,
        }

    def read(self, request: Request) -> tuple[Route, ModelSpec] | None:
        """Reads a head; returns None for a request about the server."""
        if request.method == "GET" and request.path in self._about_server:
            return None
        is_short = len(request.path) <= _REMEMBERED_BYTES
        parse = _parse if is_short else _parse.__wrapped__
        return parse(request.method, request.path)

    async def respond(
        self, request: Request, asked: tuple[Route, ModelSpec] | None, ask: Ask
    ) -> Answer:
        """Answers one request."""
        if asked is None:
            return self._about_server[request.path]()
        route, spec = asked
        request.verb, request.model = route.verb, route.model
        answer: Answer
        if route.verb == "infer":
            header = request.headers.get(_HEADER)
            answer = await ask(
                RUN_SCOPES, lambda body: infer.infer(self._plane, spec, body, header)
            )
            return answer
        work = self._index if route.verb == "index" else lambda _: self._describe(route.verb, spec)
        answer = await ask(("predict",), work)
        return answer

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

    def _ready(self) -> Answer:
        ready = self._plane.engine.ready() and not self._lifecycle.draining
        return Answer(orjson.dumps({"ready": ready}), status=200 if ready else 503)


@functools.lru_cache(maxsize=512)
def _parse(method: str, path: bytes) -> tuple[Route, ModelSpec]:
    """Returns the parsed path and its model; raises as `parse_v2_path`."""
    route = parse_v2_path(method, path)
    return route, ModelSpec(route.model, route.version, route.label)
