"""Routes requests to models by the undecoded path, before the framework's router."""

from collections.abc import Mapping

from starlette.types import ASGIApp, Receive, Scope, Send


class RawPaths:
    """Sends requests to other applications by a prefix of their undecoded path."""

    def __init__(self, app: ASGIApp, planes: Mapping[bytes, ASGIApp]) -> None:
        """Wraps an application.

        Args:
            app: Takes the requests that no prefix matches.
            planes: Applications by prefix, in lower case; letter case is ignored. The first
                matching prefix takes the request.
        """
        self._app = app
        self._planes = tuple(planes.items())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Runs the matching application for one request."""
        if scope["type"] == "http":
            path = raw_path(scope).lower()
            for prefix, plane in self._planes:
                if path.startswith(prefix):
                    await plane(scope, receive, send)
                    return
        await self._app(scope, receive, send)


def raw_path(scope: Scope) -> bytes:
    """Returns the path as the client sent it, without the query."""
    path: bytes = scope.get("raw_path") or scope["path"].encode()
    return path.split(b"?", 1)[0]
