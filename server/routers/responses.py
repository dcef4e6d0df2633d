"""Responses with the answers of the data plane, and with errors."""

import asyncio
import contextlib
import functools
from collections.abc import Iterator

import orjson
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from ..errors import HTTP_STATUS, Code, RefusedError, ServingError
from ..services.answer import Answer, Headers

RawHeaders = list[tuple[bytes, bytes]]

CLOSE = ("connection", "close")
# Larger bodies are sent in pieces of this size. Each piece waits until the connection has taken the
# piece before it.
_PIECE_BYTES = 256 << 10
# A refused client may keep sending its body for this many bytes and seconds. If the gateway closed
# the connection at once, the system would reset it, and most clients would never see the answer.
_LINGER_BYTES = 64 << 20
_LINGER_SECONDS = 2.0


class AnswerResponse(Response):
    """The response with an answer. Sends large bodies in pieces."""

    def __init__(self, answer: Answer, *, lingers: bool = False) -> None:
        """Creates the response; if it lingers, it discards the rest of the request before its end.

        So a client that still sends its body has time to read the answer.
        """
        self.status_code = answer.status
        self.background = None
        self._parts = (answer.body,) if isinstance(answer.body, bytes) else answer.body
        self._size = sum(map(len, self._parts))
        self._lingers = lingers
        self.raw_headers = [
            *_raw_headers(answer.media_type, answer.version, answer.headers),
            (b"content-length", b"%d" % self._size),
        ]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002
        """Sends the response."""
        start = {"type": "http.response.start", "status": self.status_code}
        await send({**start, "headers": self.raw_headers})
        left = self._size
        for part in self._parts:
            view = part if isinstance(part, bytes) else part.data
            for piece in (view,) if 0 < len(view) <= _PIECE_BYTES else _pieces(view):
                left -= len(piece)
                more = left > 0 or self._lingers
                await send({"type": "http.response.body", "body": piece, "more_body": more})
        if self._lingers:
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(_discard(receive), _LINGER_SECONDS)
        if self._lingers or not self._size:
            await send({"type": "http.response.body", "body": b"", "more_body": False})


class RefusalResponse(AnswerResponse):
    """The response to a request that breaks a rule of HTTP."""

    def __init__(self, error: RefusedError) -> None:
        """Creates the response."""
        answer = error_answer(error.status, error.message, (CLOSE,) if error.close else ())
        super().__init__(answer, lingers=error.linger)


@functools.lru_cache(maxsize=512)
def _raw_headers(media_type: str, version: int | None, headers: Headers) -> RawHeaders:
    named = [("content-type", media_type)] if media_type else []
    if version is not None:
        named.append(("x-model-version", str(version)))
    return [(name.encode(), value.encode("latin-1")) for name, value in (*named, *headers)]


def _pieces(content: bytes | memoryview) -> Iterator[memoryview]:
    view = memoryview(content)
    for start in range(0, len(view), _PIECE_BYTES):
        yield view[start : start + _PIECE_BYTES]


async def _discard(receive: Receive) -> None:
    left = _LINGER_BYTES
    while left > 0:
        message = await receive()
        if message["type"] == "http.disconnect" or not message.get("more_body", False):
            return
        left -= len(message.get("body", b""))


def error_answer(status: int, message: str, headers: Headers = ()) -> Answer:
    """Returns the answer `{"error": message}`."""
    # A message may quote a lone surrogate from the client, which UTF-8 cannot encode.
    text = message.encode("utf-8", "replace").decode()
    return Answer(orjson.dumps({"error": text}), headers=headers, status=status)


def serving_error_answer(error: ServingError) -> Answer:
    """Returns the answer for a public error."""
    headers: Headers = ()
    if error.retry_after is not None:
        headers = (("retry-after", str(max(1, round(error.retry_after)))),)
    elif error.code is Code.UNAVAILABLE:
        headers = (("retry-after", "1"),)
    if error.code is Code.UNAUTHENTICATED:
        headers = (*headers, ("www-authenticate", 'Bearer realm="gateway"'))
    return error_answer(HTTP_STATUS[error.code], error.message, headers)
