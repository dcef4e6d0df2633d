"""Limits the request body while it arrives."""

import asyncio

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from server.edge.http.responses import error_response

# How many bytes, and how many seconds, a refused client may keep sending. Closing the connection at
# once would reset it, and most clients would never see the answer.
_LINGER_BYTES = 64 << 20
_LINGER_SECONDS = 2.0


class BodyTooLargeError(Exception):
    """The body exceeds the limit; `receive` raises it."""


class BodyLimit:
    """Answers 413 to bodies over a limit, by their declared or their streamed size."""

    def __init__(self, app: ASGIApp, max_bytes: int) -> None:
        """Wraps an application.

        Args:
            app: The application.
            max_bytes: Largest body in bytes, as sent.
        """
        self._app = app
        self._max_bytes = max_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Runs the application for one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if _declared_length(scope) > self._max_bytes:
            await self._refuse(scope, receive, send)
            return
        received = 0
        more = True

        async def receive_counted() -> Message:
            nonlocal received, more
            message = await receive()
            received += len(message.get("body", b""))
            more = message.get("more_body", False)
            if received > self._max_bytes:
                raise BodyTooLargeError
            return message

        try:
            await self._app(scope, receive_counted, send)
        except BodyTooLargeError:
            await self._refuse(scope, receive, send, more=more)

    async def _refuse(
        self, scope: Scope, receive: Receive, send: Send, *, more: bool = True
    ) -> None:
        response = error_response(
            413,
            f"Request body exceeds {self._max_bytes} bytes",
            {"connection": "close"},
        )

        async def send_before_reading(message: Message) -> None:
            if message["type"] == "http.response.body" and more:
                await send({**message, "more_body": True})
                await _discard(receive)
                await send({"type": "http.response.body"})
            else:
                await send(message)

        await response(scope, receive, send_before_reading)


def _declared_length(scope: Scope) -> int:
    for name, value in scope["headers"]:
        if name == b"content-length":
            return int(value) if value.isdigit() and len(value) < 19 else 2**63
    return 0


async def _discard(receive: Receive) -> None:
    async def read() -> None:
        left = _LINGER_BYTES
        while left > 0:
            message = await receive()
            if message["type"] == "http.disconnect" or not message.get("more_body", False):
                return
            left -= len(message.get("body", b""))

    try:
        await asyncio.wait_for(read(), _LINGER_SECONDS)
    except asyncio.TimeoutError:
        return
