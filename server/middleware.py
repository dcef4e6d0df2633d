"""The outermost part of the application: a record per request, and the rules for its head."""

import asyncio
import re
import time

from starlette.routing import BaseRoute, Match, Mount
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .dependencies import DataPlane, public_error
from .errors import RefusedError, ServingError
from .limits import ClientGoneError
from .observability.accounts import new_id
from .observability.logs import LOG
from .request import RECORD, Request
from .routers.body import CLOSE, error_response, refusal
from .routers.routing import path_of
from .settings import Settings
from .wire.paths import PREFIX

_ALLOWED_ID = re.compile(rb"[A-Za-z0-9-]{1,64}")


class RecordMiddleware:
    """ASGI middleware that reports each request, and answers errors without their tracebacks."""

    def __init__(self, app: ASGIApp, plane: DataPlane) -> None:
        """Creates the middleware.

        The settings of `plane` have the limits of heads and bodies, and the web origin that may
        call /v1/. While its lifecycle drains, answers ask clients to close their connections.
        """
        self._app, self._settings = app, plane.settings
        self._accounts, self._lifecycle = plane.accounts, plane.lifecycle
        origin = plane.settings.cors_origin
        self._cors = [(b"access-control-allow-origin", origin.encode())] if origin else []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begun = time.perf_counter()
        # If a header repeats, its first value counts.
        sent: dict[bytes, bytes] = dict(reversed(scope["headers"]))
        sent_id, client = sent.get(b"x-request-id"), scope.get("client")
        record = scope[RECORD] = Request(
            sent_id.decode() if sent_id and _ALLOWED_ID.fullmatch(sent_id) else new_id(),
            scope["method"],
            path_of(scope),
            scope["query_string"],
            sent,
            client[0] if client else "",
        )

        async def send_noted(message: Message) -> None:
            is_start = message["type"] == "http.response.start"
            if is_start:
                headers = [*message["headers"], (b"x-request-id", record.id.encode())]
                if self._cors and record.path[: len(PREFIX)].lower() == PREFIX:
                    headers += self._cors
                if self._lifecycle.draining and CLOSE not in headers:
                    headers.append(CLOSE)
                message["headers"] = headers
            elif record.method != "HEAD":
                record.sent_bytes += len(message.get("body", b""))
            await send(message)
            if is_start:
                record.status = message["status"]

        asked = scope
        if record.method == "HEAD" and record.path[: len(PREFIX)].lower() != PREFIX:
            # Whatever answers GET answers HEAD (RFC 9110, section 9.1). The server sends no body.
            # A mounted application takes every method, also of paths whose GET a route answers.
            as_get = {**scope, "method": "GET"}
            taker = _taker(scope)
            if taker is None or (isinstance(taker, Mount) and _taker(as_get) is not taker):
                scope = as_get
        self._accounts.begin(record)
        try:
            _check_head(scope, record, self._settings)
            await self._app(scope, receive, send_noted)
        except ClientGoneError:
            if not record.status:
                # Nobody reads it, but FastAPI's own middleware expects an answer to every request.
                await error_response(499, "Client closed the request")(scope, receive, send_noted)
            record.status = 499
        except asyncio.CancelledError:
            # The gateway shuts down before this request has ended. If the answer has not begun,
            # tell the client to try again.
            if record.status:
                raise
            retry = (CLOSE, (b"retry-after", b"1"))
            response = error_response(503, "The gateway stops: try again", retry)
            await response(scope, receive, send_noted)
        except Exception as error:
            if isinstance(error, ServingError) and not record.status:
                response = refusal(public_error(error, record))
            else:
                # The client gets the id; the log gets everything else.
                LOG.exception("request failed", extra={"request_id": record.id})
                response = error_response(500, f"Internal error. Request id: {record.id}")
            if not record.status:
                await response(scope, receive, send_noted)
        finally:
            if scope is not asked:
                asked.update(scope, method="HEAD")  # an outer middleware looks for the route there
            self._accounts.end(record, time.perf_counter() - begun)


def _taker(scope: Scope) -> BaseRoute | None:
    """Returns the route that takes a request; None if there is none."""
    routes: list[BaseRoute] = scope["app"].routes
    return next((each for each in routes if each.matches(scope)[0] is Match.FULL), None)


def _check_head(scope: Scope, record: Request, settings: Settings) -> None:
    """Checks the head.

    Raises:
        RefusedError: 431 for a head over a limit; 400 for a head without exactly one Host
            (HTTP/1.1), or with a body of unclear length; 413 for a body that is declared too large.
    """
    listed, headers = scope["headers"], record.headers
    head_bytes, body_bytes = settings.max_header_bytes, settings.max_body_bytes
    size = len(record.path) + len(record.query)
    for name, value in listed:
        size += len(name) + len(value)
    if size > head_bytes:
        raise RefusedError(431, f"Request head exceeds {head_bytes} bytes")
    # HTTP/1.0 has no Host header.
    if len(listed) != len(headers) or b"host" not in headers:
        hosts = sum(name == b"host" for name, _ in listed)
        if hosts > 1 or (not hosts and scope.get("http_version") == "1.1"):
            raise RefusedError(
                400, f"A request must have one Host header. Received: {hosts} of them"
            )
    if b"transfer-encoding" in headers:
        coding = b", ".join([value for name, value in listed if name == b"transfer-encoding"])
        if coding.strip().lower() != b"chunked":
            told = coding.decode("latin-1")[:128]
            raise RefusedError(400, f"Transfer-Encoding must be chunked. Received: {told}")
    has_body = b"content-length" in headers or b"transfer-encoding" in headers
    if has_body and b"upgrade" in headers.get(b"connection", b"").lower():
        # The parser skips the body of such a request.
        raise RefusedError(
            400, "A request with a body must not ask for an upgrade. Send it without Upgrade."
        )
    length = headers.get(b"content-length", b"0").strip()
    if not length.isdigit():
        raise RefusedError(
            400,
            "Content-Length must be a whole number of bytes. "
            f"Received: {length.decode('latin-1')[:128]}",
        )
    if len(length) > 18 or int(length) > body_bytes:
        raise RefusedError(413, f"Request body exceeds {body_bytes} bytes", linger=True)
