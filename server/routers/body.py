"""Reads the bodies of requests within limits, and sends answers and errors."""

import asyncio
import contextlib
import functools
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, TypeVar

import orjson
from starlette.requests import Request as HttpRequest
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from ..dependencies import DataPlane
from ..errors import Code, RefusedError, ServingError
from ..limits import ClientGoneError, Supervisor
from ..request import RECORD, Answer, Headers, Request
from .inflate import Inflater, encoding_of
from .routing import ROUTE

T = TypeVar("T")

CLOSE = (b"connection", b"close")
# Larger bodies are sent in pieces of this size. Each piece waits until the connection has taken the
# piece before it. Until then the rest of the body counts as memory of its client.
_PIECE_BYTES = 256 << 10
# A refused client may keep sending its body for this many bytes and seconds. If the gateway closed
# the connection at once, the system would reset it, and most clients would never see the answer.
_LINGER_BYTES = 64 << 20
_LINGER_SECONDS = 2.0
# Joining the pieces of a larger body would delay other requests. From this size on, `bytes.join`
# lets other threads run.
_THREAD_BYTES = 1 << 20


def admitted(
    request: HttpRequest, scopes: Sequence[str], work: Callable[[bytes], Awaitable[T]]
) -> Coroutine[Any, Any, T]:
    """Returns the result of `work` on the body of a request; raises as `DataPlane.answer`.

    The client's key needs one of the `scopes`; if there are none, any known key is enough.

    Raises:
        RefusedError: 408 for a body that is late, 413 for a body that is too large, 415 for an
            unknown compression.
    """
    plane: DataPlane = request.app.state.plane
    record, read = request.scope[RECORD], functools.partial(_read, request, plane)

    async def gone() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass

    return plane.answer(record, scopes, work, read, gone)


async def answered(
    request: HttpRequest, scopes: Sequence[str], work: Callable[[bytes], Awaitable[Answer]]
) -> "AnswerResponse":
    """Answers a request with the result of `work` on its body; as `admitted`."""
    return AnswerResponse(await admitted(request, scopes, work))


async def run(
    request: HttpRequest,
    scopes: Sequence[str],
    service: Callable[..., Awaitable[Answer]],
    **more: Any,
) -> "AnswerResponse":
    """Runs a service on a model and a body: `service(plane, spec, body, **more)`."""
    plane, spec = request.app.state.plane, request.scope[ROUTE].spec
    work = functools.partial(service, plane, spec, **more)
    return AnswerResponse(await admitted(request, scopes, work))


async def describe(
    request: HttpRequest,
    scopes: Sequence[str],
    service: Callable[..., Awaitable[tuple[Any, int | None]]],
    *more: Any,
) -> "AnswerResponse":
    """Describes a model: `service(plane, spec, *more)` returns the JSON and the version."""
    plane, spec = request.app.state.plane, request.scope[ROUTE].spec

    async def work(_: bytes) -> Answer:
        told, version = await service(plane, spec, *more)
        return Answer(orjson.dumps(told), version)

    return await answered(request, scopes, work)


async def _read(request: HttpRequest, plane: DataPlane, supervisor: Supervisor) -> bytes:
    begun = time.perf_counter()
    record: Request = request.scope[RECORD]
    settings = plane.settings
    supervisor.bound(
        settings.body_seconds,
        lambda: RefusedError(
            408, f"Request body must arrive within {settings.body_seconds:g} seconds"
        ),
    )
    most, inflater = min(settings.max_body_bytes, settings.max_decompressed_bytes), None
    encoding = record.headers.get(b"content-encoding")
    if encoding and (encoding := encoding_of(encoding)):
        most = settings.max_body_bytes
        inflater = Inflater(settings.max_decompressed_bytes, encoding)
    received, more = 0, True
    chunks: list[bytes] = []
    while more:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise ClientGoneError
        chunk = message.get("body", b"")
        more = message.get("more_body", False)
        received += len(chunk)
        if received > most:
            raise RefusedError(413, f"Request body exceeds {most} bytes", linger=more)
        if inflater is not None:
            chunk = await inflater.feed(chunk, last=not more)
        plane.receive(record, len(chunk))
        chunks.append(chunk)
    if len(chunks) == 1:
        body = chunks[0]
    elif record.received_bytes < _THREAD_BYTES:
        body = b"".join(chunks)
    else:
        body = await asyncio.to_thread(b"".join, chunks)
    record.stages["read"] += time.perf_counter() - begun
    return body


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
        media_type, version = answer.media_type, answer.version
        headers = [(b"content-type", media_type.encode())] if media_type else []
        if version is not None:
            headers.append((b"x-model-version", b"%d" % version))
        self.raw_headers = [*headers, *answer.headers, (b"content-length", b"%d" % self._size)]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Sends the response."""
        held: contextlib.AbstractContextManager[None] = contextlib.nullcontext()
        if self._size > _PIECE_BYTES:
            held = scope["app"].state.plane.sending(scope[RECORD], self._size)
        head = {"type": "http.response.start", "status": self.status_code}
        with held:
            await send({**head, "headers": self.raw_headers})
            left = self._size
            for part in self._parts:
                view: bytes | memoryview = part if isinstance(part, bytes) else part.data
                if len(view) > _PIECE_BYTES:
                    view = memoryview(view)
                for start in range(0, len(view), _PIECE_BYTES):
                    piece = view[start : start + _PIECE_BYTES]
                    left -= len(piece)
                    more = left > 0 or self._lingers
                    await send({"type": "http.response.body", "body": piece, "more_body": more})
            if self._lingers:
                with contextlib.suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(_discard(receive), _LINGER_SECONDS)
            if self._lingers or not self._size:
                await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _discard(receive: Receive) -> None:
    left = _LINGER_BYTES
    while left > 0:
        message = await receive()
        if message["type"] == "http.disconnect" or not message.get("more_body", False):
            return
        left -= len(message.get("body", b""))


def error_response(
    status: int, message: str, headers: Headers = (), *, lingers: bool = False
) -> AnswerResponse:
    """Returns the response `{"error": message}`."""
    # A message may quote a lone surrogate from the client, which UTF-8 cannot encode.
    body = orjson.dumps({"error": message.encode("utf-8", "replace").decode()})
    return AnswerResponse(Answer(body, headers=headers, status=status), lingers=lingers)


def refusal(error: ServingError) -> AnswerResponse:
    """Returns the response to a refused request; the error must be public."""
    headers: Headers = (CLOSE,) if error.close else ()
    if error.retry_after is not None:
        headers = (*headers, (b"retry-after", b"%d" % max(1, round(error.retry_after))))
    if error.code is Code.UNAUTHENTICATED:
        headers = (*headers, (b"www-authenticate", b'Bearer realm="gateway"'))
    return error_response(error.status, error.message, headers, lingers=error.linger)
