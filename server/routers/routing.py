"""Routes about models. They match the undecoded path of a request."""

import functools
import re
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar
from urllib.parse import parse_qsl

from fastapi import APIRouter
from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match
from starlette.types import Receive, Scope, Send

from ..errors import ServingError
from ..request import RECORD
from ..wire.paths import PARAMETERS, PREFIX, Route, parse_path, parse_v2_path
from .openapi import described

_Endpoint = TypeVar("_Endpoint", bound=Callable[[Request], Awaitable[Response]])

#: Key of an ASGI scope: the parsed path of a request that a `ModelRoute` answers.
ROUTE = "gateway.route"
_PARAMETER = re.compile(r"\{\w+\}")
# Longer paths are parsed each time, because they would fill the memory of the cache.
_REMEMBERED_BYTES = 256


class ModelRoute(APIRoute):
    """A route for paths that `wire.paths` parses.

    The endpoint takes the request and returns the response. FastAPI reads no body for it and
    resolves no dependencies.
    """

    def __init__(self, path: str, endpoint: Any, **options: Any) -> None:
        """Creates the route; arguments as for `APIRoute`."""
        super().__init__(path, endpoint, **options)
        self._methods = frozenset(self.methods or ())
        (method,) = self._methods
        sample = _parse(method, _PARAMETER.sub("1", path).encode(), b"")
        assert sample is not None, path
        self._form = sample.form

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Compares the form of the request's path with the form of this route."""
        if scope["type"] != "http":
            return Match.NONE, {}
        if ROUTE in scope:
            route = scope[ROUTE]
        else:
            path, query = scope[RECORD].path, scope[RECORD].query
            is_short = len(path) + len(query) <= _REMEMBERED_BYTES
            parse = _parse if is_short else _parse.__wrapped__
            route = scope[ROUTE] = parse(scope["method"], path, query)
        if route is None or route.form != self._form:
            return Match.NONE, {}
        found = Match.FULL if scope["method"] in self._methods else Match.PARTIAL
        parameters = dict(route.parameters)
        return found, {"endpoint": self.endpoint, "route": self, "path_params": parameters}

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers a request whose path matches."""
        if scope["method"] not in self._methods:
            await super().handle(scope, receive, send)  # it raises the error 405
        record, route = scope[RECORD], scope[ROUTE]
        record.verb, record.model = route.verb, route.spec.name
        response = await self.endpoint(Request(scope, receive, send))
        await response(scope, receive, send)


class ModelRouter(APIRouter):
    """A router of requests about models."""

    def __init__(self, prefix: str, choices: Sequence[str]) -> None:
        """Creates the router.

        Args:
            prefix: The beginning of all paths.
            choices: The parts of a path that choose another version than the latest.
        """
        super().__init__(route_class=ModelRoute)
        self._starts = [f"{prefix}/models/{{model}}{choice}" for choice in ("", *choices)]

    def on(
        self, method: str, end: str, *about: Any, **more: Any
    ) -> Callable[[_Endpoint], _Endpoint]:
        """Registers an endpoint for the latest version and for each other choice.

        `end` is the end of the paths, after the model and its version. `about` and `more` are the
        arguments of `described` after the path.
        """

        def register(endpoint: _Endpoint) -> _Endpoint:
            for start in self._starts:
                told = described(start + end, *about, **more)
                self.add_api_route(start + end, endpoint, methods=[method], **told)
            return endpoint

        return register


def path_of(scope: Scope) -> bytes:
    """Returns the undecoded path of a request, without its query and without a mount's prefix."""
    path: bytes = scope.get("raw_path") or scope["path"].encode()
    root: bytes = scope.get("root_path", "").encode()
    return path.split(b"?", 1)[0].removeprefix(root)


@functools.lru_cache(maxsize=512)
def _parse(method: str, path: bytes, query: bytes) -> Route | None:
    """Returns the meaning of a path; None if no `ModelRoute` has its form."""
    # The route compares the method: under /v2 its answer to another method is 405.
    if path[: len(PREFIX)].lower() != PREFIX:
        return parse_v2_path(path)
    try:
        return parse_path(method, with_query(path, query))
    except ServingError:
        return None


def with_query(path: bytes, query: bytes) -> bytes:
    """Returns a path under /v1/ as TensorFlow Serving sees it.

    TensorFlow Serving has no query parameters. The query is part of the path there, and here too
    unless its verb has all these parameters, each once.
    """
    if not query:
        return path
    names = [name for name, _ in parse_qsl(query.decode("latin-1"), keep_blank_values=True)]
    known = PARAMETERS.get(path.rpartition(b":")[2], set())
    is_known = names and known.issuperset(names) and len(set(names)) == len(names)
    return path if is_known else path + b"?" + query
