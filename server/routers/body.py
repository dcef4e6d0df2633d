"""Sends requests to the data plane, and reads their bodies within limits."""

import asyncio
import dataclasses
import functools
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from starlette.requests import Request as HttpRequest
from starlette.types import Receive

from ..errors import RefusedError
from ..request import RECORD, Request
from ..services.answer import Answer
from ..services.plane import ClientGoneError, DataPlane, Supervisor
from .inflate import Inflater, encoding_of
from .responses import AnswerResponse
from .routing import TARGET

# Joining the pieces of a larger body would delay other requests. From this size on, `bytes.join`
# lets other threads run.
_THREAD_BYTES = 1 << 20


@dataclasses.dataclass(frozen=True)
class BodyBounds:
    """Limits of a request's body.

    Attributes:
        body_bytes: Largest body in bytes, as sent.
        inflated_bytes: Largest body in bytes after decompression.
        seconds: Seconds for a client to send its body.
    """

    body_bytes: int
    inflated_bytes: int
    seconds: float


async def answered(
    request: HttpRequest, scopes: Sequence[str], work: Callable[[bytes], Awaitable[Answer]]
) -> AnswerResponse:
    """Answers a request with the result of `work` on its body; raises as `DataPlane.answer`.

    Args:
        request: The request.
        scopes: The client's key needs one of these scopes; if empty, any known key is enough.
        work: Computes the answer from the body.

    Raises:
        RefusedError: 408 for a body that is late, 413 for a body that is too large, 415 for an
            unknown compression.
    """
    state, record, receive = request.app.state, request.scope[RECORD], request.receive
    encoding = record.headers.get(b"content-encoding")
    encoding = encoding_of(encoding) if encoding else b""
    read = functools.partial(_read, state.plane, state.bounds, record, encoding, receive)
    gone = functools.partial(_gone, receive)
    return AnswerResponse(await state.plane.answer(record, scopes, work, read, gone))


async def run(
    request: HttpRequest,
    scopes: Sequence[str],
    service: Callable[..., Awaitable[Answer]],
    **more: Any,
) -> AnswerResponse:
    """Runs a service on a model and a body: `service(plane, spec, body, **more)`."""
    plane, spec = request.app.state.plane, request.scope[TARGET].spec
    return await answered(request, scopes, functools.partial(service, plane, spec, **more))


async def describe(
    request: HttpRequest,
    scopes: Sequence[str],
    service: Callable[..., Awaitable[Answer]],
    *more: Any,
) -> AnswerResponse:
    """Describes a model: `service(plane, spec, *more)`."""
    plane, spec = request.app.state.plane, request.scope[TARGET].spec
    return await answered(request, scopes, lambda _: service(plane, spec, *more))


async def _read(
    plane: DataPlane,
    bounds: BodyBounds,
    record: Request,
    encoding: bytes,
    receive: Receive,
    supervisor: Supervisor,
) -> bytes:
    begun = time.perf_counter()
    supervisor.bound(
        bounds.seconds,
        lambda: RefusedError(408, f"Request body must arrive within {bounds.seconds:g} seconds"),
    )
    most, inflater = min(bounds.body_bytes, bounds.inflated_bytes), None
    if encoding:
        most, inflater = bounds.body_bytes, Inflater(bounds.inflated_bytes, encoding)
    received, more = 0, True
    chunks: list[bytes] = []
    while more:
        message = await receive()
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
    record.spent("read", time.perf_counter() - begun)
    return body


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
