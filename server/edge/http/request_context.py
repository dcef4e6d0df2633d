"""The outermost layer: gives each request its record, and hides tracebacks from clients."""

import asyncio
import re
import time

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from server.dataplane.lifecycle import Lifecycle
from server.edge.http.exchange import attach
from server.edge.http.raw_paths import raw_path
from server.edge.http.responses import error_response
from server.observability.accounts import Accounts, new_id
from server.observability.logs import LOG
from server.request import Request

_CLOSE = (b"connection", b"close")
_ALLOWED_ID = re.compile(rb"[A-Za-z0-9-]{1,64}")


class RequestContext:
    """Gives every request its record, and reports it to the accounts at the end."""

    def __init__(self, app: ASGIApp, accounts: Accounts, lifecycle: Lifecycle) -> None:
        """Wraps an application.

        Args:
            app: The application.
            accounts: Counts and logs its requests.
            lifecycle: While it drains, answers ask clients to close their connections.
        """
        self._app = app
        self._accounts = accounts
        self._lifecycle = lifecycle

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Runs the application for one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = _request(scope)
        attach(scope, request)
        id_header = (b"x-request-id", request.id.encode())
        begun = time.perf_counter()

        async def send_counted(message: Message) -> None:
            if message["type"] == "http.response.start":
                request.status = message["status"]
                headers = [*message.get("headers", ()), id_header]
                if self._lifecycle.draining and _CLOSE not in headers:
                    headers.append(_CLOSE)
                message["headers"] = headers
            await send(message)

        self._accounts.begin()
        try:
            await self._app(scope, receive, send_counted)
        except asyncio.CancelledError:
            # The process ends before the request does.
            if request.status:
                raise
            headers = {"connection": "close", "retry-after": "1"}
            refusal = error_response(503, "The gateway stops: try again", headers)
            await refusal(scope, receive, send_counted)
        except Exception:
            # The client gets the id; the log gets everything else.
            LOG.exception("request failed", extra={"request_id": request.id})
            if not request.status:
                message = f"Internal error. Request id: {request.id}"
                await error_response(500, message)(scope, receive, send_counted)
        finally:
            self._accounts.end(request, time.perf_counter() - begun)


def _request(scope: Scope) -> Request:
    headers: dict[bytes, bytes] = dict(reversed(scope["headers"]))
    sent_id = headers.get(b"x-request-id", b"")
    return Request(
        id=sent_id.decode() if _ALLOWED_ID.fullmatch(sent_id) else new_id(),
        method=scope["method"],
        path=raw_path(scope),
        query=scope["query_string"],
        headers=headers,
        address=(scope.get("client") or ("",))[0],
    )
