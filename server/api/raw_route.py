"""A route by the undecoded path, which Starlette's own routes never look at."""

from typing import Any

from starlette.datastructures import URLPath
from starlette.routing import BaseRoute, Match, NoMatchFound
from starlette.types import ASGIApp, Receive, Scope, Send


class RawPrefixRoute(BaseRoute):
    """Sends every request whose undecoded path begins with a prefix, letter case ignored."""

    def __init__(self, prefix: bytes, app: ASGIApp) -> None:
        """Makes the route.

        Args:
            prefix: Beginning of the path, lower case.
            app: Takes the requests, whatever their method.
        """
        self._prefix = prefix
        self._app = app

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Says whether a request is for this route."""
        if scope["type"] == "http" and raw_path(scope).lower().startswith(self._prefix):
            return Match.FULL, {}
        return Match.NONE, {}

    def url_path_for(self, name: str, /, **path_params: Any) -> URLPath:
        """Says that the route makes no addresses."""
        raise NoMatchFound(name, path_params)

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes a request on."""
        await self._app(scope, receive, send)


def raw_path(scope: Scope) -> bytes:
    """Returns the path as the client sent it, without the query."""
    path: bytes = scope.get("raw_path") or scope["path"].encode()
    return path.split(b"?", 1)[0]
