"""The entry point of HTTP requests: their records, the rules for their heads, and their APIs.

One class does all of this. With several layers of middleware, each layer would delay every request.
"""

import asyncio
import re
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any, Protocol

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ...dataplane.answer import Answer
from ...dataplane.lifecycle import Lifecycle
from ...dataplane.plane import DataPlane, public_error
from ...dataplane.start import ensure_task
from ...dataplane.supervision import ClientGoneError
from ...errors import ServingError
from ...observability.accounts import Accounts, new_id
from ...observability.logs import LOG
from ...request import Request
from .exchange import Exchange, HttpBounds, too_large
from .inflate import encoding_of
from .protocol import WHOLE, WholeMessages
from .refusal import RefusedError
from .responses import (
    CLOSE,
    RawHeaders,
    error_answer,
    send_answer,
    serving_error_answer,
    write_answer,
)

_CLOSE = (b"connection", b"close")
_ALLOWED_ID = re.compile(rb"[A-Za-z0-9-]{1,64}")


class Ask(Protocol):
    """Sends the request to the data plane; see `DataPlane.answer`."""

    def __call__(
        self, scopes: Sequence[str], work: Callable[[bytes], Awaitable[Any]]
    ) -> Coroutine[Any, Any, Any]:
        """Returns the result of `work` on the body."""
        ...


class Api(Protocol):
    """Answers requests whose path begins with a prefix."""

    #: Headers of every answer.
    headers: RawHeaders

    def read(self, request: Request) -> Any:
        """Reads a head, or raises `ServingError`. The result serves all requests with this head."""
        ...

    async def respond(self, request: Request, asked: Any, ask: Ask) -> Answer:
        """Answers one request, or raises `ServingError`; `asked` is what `read` returned."""
        ...


class Front:
    """ASGI application that sends each request to an API. Hides tracebacks from clients."""

    def __init__(
        self,
        apis: Mapping[bytes, Api],
        others: ASGIApp | None,
        plane: DataPlane,
        bounds: HttpBounds,
        accounts: Accounts,
        lifecycle: Lifecycle,
    ) -> None:
        """Creates the application.

        Args:
            apis: APIs by prefix, in lower case; letter case is ignored. The first matching prefix
                takes the request.
            others: Takes the requests that no prefix matches; None if a prefix matches all.
            plane: The data plane of the APIs.
            bounds: The limits of a request.
            accounts: Counts and logs the requests.
            lifecycle: While it drains, answers ask clients to close their connections.
        """
        self._apis = tuple(apis.items())
        self._others = others
        self._plane = plane
        self._bounds = bounds
        self._accounts = accounts
        self._lifecycle = lifecycle

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one request."""
        if scope["type"] != "http":
            return
        begun = time.perf_counter()
        messages: WholeMessages | None = scope.pop(WHOLE, None)
        head = None if messages is None else messages.head
        known: _Known | None = None if head is None else head.entry
        if known is None:
            known = _Known(scope)
        request = known.request(scope)
        accounts = self._accounts
        accounts.begin(request)
        try:
            await self._respond(scope, known, request, messages, receive, send)
        except ClientGoneError:
            request.status = 499
        except asyncio.CancelledError:
            # The gateway shuts down before this request has ended. If the answer has not begun,
            # tell the client to try again.
            if request.status:
                raise
            stops = error_answer(503, "The gateway stops: try again", (CLOSE, ("retry-after", "1")))
            await self._send(request, stops, [], send)
        except Exception:
            # The client gets the id; the log gets everything else.
            LOG.exception("request failed", extra={"request_id": request.id})
            if not request.status:
                failure = error_answer(500, f"Internal error. Request id: {request.id}")
                await self._send(request, failure, [], send)
        finally:
            accounts.end(request, time.perf_counter() - begun)

    async def _respond(
        self,
        scope: Scope,
        known: "_Known",
        request: Request,
        messages: WholeMessages | None,
        receive: Receive,
        send: Send,
    ) -> None:
        added: RawHeaders = []
        lingering: Receive | None = None
        try:
            if not known.read:
                self._read(scope, known, request, messages)
            api = known.api
            if api is None:
                await self._pass_on(scope, request, receive, send)
                return
            added = api.headers
            exchange = Exchange(
                self._plane, self._bounds, request, known.encoding, receive, messages
            )
            answer = await api.respond(request, known.asked, exchange.ask)
            if messages is not None and not (added or self._lifecycle.draining):
                sent = write_answer(answer, request.id, messages)
                if sent is not None:
                    request.status, request.sent_bytes = answer.status, sent
                    return
        except ServingError as error:
            answer = serving_error_answer(public_error(error, request))
        except RefusedError as error:
            answer = error_answer(error.status, error.message, (CLOSE,) if error.close else ())
            lingering = receive if error.linger else None
        await self._send(request, answer, added, send, lingering)

    def _read(
        self, scope: Scope, known: "_Known", request: Request, messages: WholeMessages | None
    ) -> None:
        """Checks and reads a head, and keeps the result for the requests that repeat the head."""
        known.encoding = _check_head(scope, request, self._bounds)
        known.api = self._api_of(request.path)
        if known.api is not None:
            known.asked = known.api.read(request)
        known.read = True
        if messages is not None and messages.head is not None:
            messages.head.entry = known

    def _api_of(self, path: bytes) -> Api | None:
        path = path.lower()
        for prefix, api in self._apis:
            if path.startswith(prefix):
                return api
        return None

    async def _send(
        self,
        request: Request,
        answer: Answer,
        added: RawHeaders,
        send: Send,
        lingering: Receive | None = None,
    ) -> None:
        request.status = answer.status
        headers = [*added, (b"x-request-id", request.id.encode())]
        if self._lifecycle.draining and CLOSE not in answer.headers:
            headers.append(_CLOSE)
        request.sent_bytes = await send_answer(answer, headers, send, lingering)

    async def _pass_on(self, scope: Scope, request: Request, receive: Receive, send: Send) -> None:
        async def send_noted(message: Message) -> None:
            if message["type"] == "http.response.start":
                request.status = message["status"]
                headers = [*message["headers"], (b"x-request-id", request.id.encode())]
                if self._lifecycle.draining:
                    headers.append(_CLOSE)
                message["headers"] = headers
            await send(message)

        assert self._others is not None
        await ensure_task()
        await self._others(scope, receive, send_noted)


class _Known:
    """All that depends on the head of a request alone.

    Attributes:
        read: True if the head was checked and read. The other attributes are set then.
        encoding: The body's compression; empty for none.
        api: The API that answers; None for other applications.
        asked: The result of the API's `read`.
    """

    __slots__ = (
        "_headers",
        "_id",
        "_method",
        "_path",
        "_query",
        "api",
        "asked",
        "encoding",
        "read",
    )

    def __init__(self, scope: Scope) -> None:
        """Creates the record of a head that was not checked yet."""
        headers: dict[bytes, bytes] = dict(reversed(scope["headers"]))
        sent_id = headers.get(b"x-request-id")
        self._id = sent_id.decode() if sent_id and _ALLOWED_ID.fullmatch(sent_id) else ""
        self._method: str = scope["method"]
        path: bytes = scope.get("raw_path") or scope["path"].encode()
        self._path = path.split(b"?", 1)[0]
        self._query: bytes = scope["query_string"]
        self._headers = headers
        self.read = False
        self.encoding = b""
        self.api: Api | None = None
        self.asked: Any = None

    def request(self, scope: Scope) -> Request:
        """Returns the record of a new request with this head."""
        client = scope.get("client")
        return Request(
            self._id or new_id(),
            self._method,
            self._path,
            self._query,
            self._headers,
            client[0] if client else "",
        )


def _check_head(scope: Scope, request: Request, bounds: HttpBounds) -> bytes:
    """Checks the head; returns the body's compression.

    Raises:
        RefusedError: 431 for a head over a limit, 400 for one without exactly one Host (HTTP/1.1),
            413 for a body that is declared too large, 415 for an unknown compression.
    """
    listed, headers = scope["headers"], request.headers
    size = len(request.path) + len(request.query)
    if len(listed) == len(headers):
        size += sum(map(len, headers)) + sum(map(len, headers.values()))
    else:
        size += sum(len(name) + len(value) for name, value in listed)
    if size > bounds.head_bytes:
        raise RefusedError(431, f"Request head exceeds {bounds.head_bytes} bytes")
    # HTTP/1.0 has no Host header.
    if len(listed) != len(headers) or b"host" not in headers:
        hosts = sum(name == b"host" for name, _ in listed)
        if hosts > 1 or (not hosts and scope.get("http_version") == "1.1"):
            raise RefusedError(
                400, f"A request must have one Host header. Received: {hosts} of them"
            )
    length = headers.get(b"content-length")
    if length and not (length.isdigit() and len(length) < 19 and int(length) <= bounds.body_bytes):
        raise too_large(bounds, linger=True)
    encoding = headers.get(b"content-encoding")
    return encoding_of(encoding) if encoding else b""
