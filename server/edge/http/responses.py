"""Sends answers as ASGI messages, and turns errors into answers."""

import asyncio
import functools
import http
import re
from collections.abc import Iterator

import orjson
from starlette.types import Receive, Send

from ...dataplane.answer import Answer, Headers
from ...dataplane.start import ensure_task
from ...errors import HTTP_STATUS, Code, ServingError
from .protocol import WholeMessages

RawHeaders = list[tuple[bytes, bytes]]

CLOSE = ("connection", "close")
# Larger bodies are sent in pieces of this size. Each piece waits until the connection has taken the
# piece before it.
_PIECE_BYTES = 256 << 10
# A refused client may keep sending its body for this many bytes and seconds. If the gateway closed
# the connection at once, the system would reset it, and most clients would never see the answer.
_LINGER_BYTES = 64 << 20
_LINGER_SECONDS = 2.0
_LINE_END = re.compile(rb"[\r\n\0]")


@functools.lru_cache(maxsize=512)
def _raw_headers(media_type: str, version: int | None, headers: Headers) -> RawHeaders:
    named = [("content-type", media_type)] if media_type else []
    if version is not None:
        named.append(("x-model-version", str(version)))
    return [(name.encode(), value.encode("latin-1")) for name, value in (*named, *headers)]


@functools.lru_cache(maxsize=512)
def _head(status: int, media_type: str, version: int | None, headers: Headers) -> bytes:
    """Returns a status line and headers.

    Raises:
        ValueError: A header contains a line end, and would forge a header or a body.
    """
    head = b"HTTP/1.1 %d %b\r\n" % (status, http.HTTPStatus(status).phrase.encode())
    for name, value in _raw_headers(media_type, version, headers):
        if _LINE_END.search(name + value):
            raise ValueError(f"A header must have no line end. Received: {name!r}: {value!r}")
        head += b"%b: %b\r\n" % (name, value)
    return head


def write_answer(answer: Answer, request_id: str, messages: WholeMessages) -> int | None:
    """Writes a whole small answer.

    Args:
        answer: The answer.
        request_id: The value of the header `x-request-id`.
        messages: Writes the answer.

    Returns:
        The size of the body in bytes; None if `send_answer` must send the answer.
    """
    body = answer.body
    parts = (body,) if isinstance(body, bytes) else body
    size = sum(map(len, parts))
    if size > _PIECE_BYTES:
        return None
    head = _head(answer.status, answer.media_type, answer.version, answer.headers)
    head = b"%bcontent-length: %d\r\nx-request-id: %b\r\n" % (head, size, request_id.encode())
    return size if messages.answer(head, parts) else None


async def send_answer(
    answer: Answer, added: RawHeaders, send: Send, linger: Receive | None = None
) -> int:
    """Sends an answer as ASGI messages.

    Args:
        answer: The answer.
        added: Further headers.
        send: Sends the answer's ASGI messages.
        linger: Receives what a refused client still sends; None if it sends nothing more.

    Returns:
        The size of the body in bytes.
    """
    body = answer.body
    parts = (body,) if isinstance(body, bytes) else body
    left = size = sum(map(len, parts))
    headers = _raw_headers(answer.media_type, answer.version, answer.headers)
    length = (b"content-length", b"%d" % size)
    await send(
        {
            "type": "http.response.start",
            "status": answer.status,
            "headers": [*headers, length, *added],
        }
    )
    for part in parts:
        view = part if isinstance(part, bytes) else part.data
        for piece in (view,) if 0 < len(view) <= _PIECE_BYTES else _pieces(view):
            left -= len(piece)
            more = left > 0 or linger is not None
            await send({"type": "http.response.body", "body": piece, "more_body": more})
    if linger is not None:
        await _discard(linger)
    if linger is not None or not size:
        await send({"type": "http.response.body", "body": b"", "more_body": False})
    return size


def _pieces(content: bytes | memoryview) -> Iterator[memoryview]:
    view = memoryview(content)
    for start in range(0, len(view), _PIECE_BYTES):
        yield view[start : start + _PIECE_BYTES]


async def _discard(receive: Receive) -> None:

    async def read() -> None:
        left = _LINGER_BYTES
        while left > 0:
            message = await receive()
            if message["type"] == "http.disconnect" or not message.get("more_body", False):
                return
            left -= len(message.get("body", b""))

    await ensure_task()
    try:
        await asyncio.wait_for(read(), _LINGER_SECONDS)
    except asyncio.TimeoutError:
        return


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
