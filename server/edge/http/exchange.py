"""The HTTP side of a request: its body, its client, and the response."""

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from server.dataplane.plane import DataPlane, public_error
from server.dataplane.supervision import ClientGoneError, Supervisor
from server.edge.http.responses import error_response, serving_error_response
from server.errors import ServingError
from server.request import Request

_KEY = "gateway.request"


class Ask(Protocol):
    """Sends the request to the data plane; see `DataPlane.answer`."""

    async def __call__(self, scopes: Sequence[str], work: Callable[[bytes], Awaitable[Any]]) -> Any:
        """Returns the result of `work` on the body."""
        ...


Respond = Callable[[Request, Ask], Awaitable[Response]]


def attach(scope: Scope, request: Request) -> None:
    """Makes `request` the record of the request in `scope`."""
    scope[_KEY] = request


def request_of(scope: Scope) -> Request:
    """Returns the record of the request in `scope`."""
    request: Request = scope[_KEY]
    return request


class SlowBodyError(Exception):
    """The client did not send its body in time."""


class HttpEdge:
    """Connects ASGI to the data plane."""

    def __init__(self, plane: DataPlane, body_seconds: float) -> None:
        """Creates the edge.

        Args:
            plane: Answers the requests.
            body_seconds: Seconds for a client to send its body.
        """
        self.plane = plane
        self._body_seconds = body_seconds

    async def run(
        self,
        scope: Scope,
        receive: Receive,
        send: Send,
        respond: Respond,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """Answers one request.

        Args:
            scope: The ASGI scope of the request.
            receive: Receives the request's ASGI messages.
            send: Sends the answer's ASGI messages.
            respond: Computes the answer, or raises `ServingError`.
            headers: Added to every answer.
        """
        request = request_of(scope)
        try:
            response = await self._respond(request, receive, respond)
        except ClientGoneError:
            request.status = 499
            return
        for name, value in (headers or {}).items():
            response.headers[name] = value
        request.sent_bytes = len(response.body)
        await response(scope, receive, send)

    async def _respond(self, request: Request, receive: Receive, respond: Respond) -> Response:
        async def read() -> bytes:
            begun = time.perf_counter()
            with Supervisor(self._body_seconds, SlowBodyError):
                body = await read_body(receive, lambda count: self.plane.receive(request, count))
            request.spent("read", time.perf_counter() - begun)
            return body

        async def gone() -> None:
            while (await receive())["type"] != "http.disconnect":
                pass

        async def ask(scopes: Sequence[str], work: Callable[[bytes], Awaitable[Any]]) -> Any:
            return await self.plane.answer(request, scopes, read, work, gone)

        try:
            return await respond(request, ask)
        except ServingError as error:
            return serving_error_response(public_error(error, request))
        except SlowBodyError:
            return error_response(
                408,
                f"Request body must arrive within {self._body_seconds:g} seconds",
                {"connection": "close"},
            )


async def read_body(receive: Receive, count: Callable[[int], None]) -> bytes:
    """Reads a request body to its end.

    Args:
        receive: The request's ASGI channel.
        count: Called with the bytes of each piece; raises `ServingError` if they are too many.

    Raises:
        ClientGoneError: The connection is closed.
    """
    chunks: list[bytes] = []
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGoneError
        chunk = message.get("body", b"")
        count(len(chunk))
        if not message.get("more_body", False):
            return b"".join([*chunks, chunk]) if chunks else bytes(chunk)
        chunks.append(chunk)
