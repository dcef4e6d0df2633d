"""A bound on the head of a request."""

from starlette.types import ASGIApp, Receive, Scope, Send

from server.edge.http.responses import error_response


class HeadRules:
    """Answers 431 to requests whose head is over a limit."""

    def __init__(self, app: ASGIApp, max_bytes: int) -> None:
        """Wraps an application.

        Args:
            app: The application.
            max_bytes: Largest head: path, query, and the headers' names and values.
        """
        self._app = app
        self._max_bytes = max_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Runs the application for one request."""
        if scope["type"] == "http" and _head_bytes(scope) > self._max_bytes:
            response = error_response(
                431, f"Request head exceeds {self._max_bytes} bytes", {"connection": "close"}
            )
            await response(scope, receive, send)
            return
        await self._app(scope, receive, send)


def _head_bytes(scope: Scope) -> int:
    head = len(scope.get("raw_path") or b"") + len(scope["query_string"])
    return head + sum(len(name) + len(value) for name, value in scope["headers"])
