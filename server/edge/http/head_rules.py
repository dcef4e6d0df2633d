"""Rules for the head of a request."""

from starlette.types import ASGIApp, Receive, Scope, Send

from server.edge.http.responses import error_response


class HeadRules:
    """Answers 431 to a head over a limit, and 400 to a head without exactly one Host (HTTP/1.1)."""

    def __init__(self, app: ASGIApp, max_bytes: int) -> None:
        """Wraps an application.

        Args:
            app: The application.
            max_bytes: Largest head in bytes: path, query, and the headers' names and values.
        """
        self._app = app
        self._max_bytes = max_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Runs the application for one request."""
        refusal = self._refusal(scope) if scope["type"] == "http" else None
        if refusal is None:
            await self._app(scope, receive, send)
            return
        response = error_response(*refusal, {"connection": "close"})
        await response(scope, receive, send)

    def _refusal(self, scope: Scope) -> tuple[int, str] | None:
        if _head_bytes(scope) > self._max_bytes:
            return 431, f"Request head exceeds {self._max_bytes} bytes"
        hosts = [name for name, _ in scope["headers"]].count(b"host")
        # HTTP/1.0 has no Host header.
        if hosts > 1 or (not hosts and scope.get("http_version") == "1.1"):
            return 400, f"A request must have one Host header. Received: {hosts} of them"
        return None


def _head_bytes(scope: Scope) -> int:
    head = len(scope.get("raw_path") or b"") + len(scope["query_string"])
    return head + sum(len(name) + len(value) for name, value in scope["headers"])
