"""Connects one HTTP request to the data plane: its body, and its client's disconnection."""

import asyncio
import dataclasses
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any

from starlette.types import Receive

from ...dataplane.plane import DataPlane
from ...dataplane.supervision import ClientGoneError, Supervisor
from ...request import Request
from .inflate import Inflater
from .protocol import WholeMessages
from .refusal import RefusedError

# Joining the pieces of a larger body would delay other requests. From this size on, `bytes.join`
# lets other threads run.
_THREAD_BYTES = 1 << 20


@dataclasses.dataclass(frozen=True)
class HttpBounds:
    """Limits of an HTTP request.

    Attributes:
        head_bytes: Largest head in bytes: path, query, and the headers' names and values.
        body_bytes: Largest body in bytes, as sent.
        inflated_bytes: Largest body in bytes after decompression.
        body_seconds: Seconds for a client to send its body.
    """

    head_bytes: int
    body_bytes: int
    inflated_bytes: int
    body_seconds: float


class Exchange:
    """Sends one request to the data plane."""

    __slots__ = ("_bounds", "_encoding", "_messages", "_plane", "_receive", "_request")

    def __init__(
        self,
        plane: DataPlane,
        bounds: HttpBounds,
        request: Request,
        encoding: bytes,
        receive: Receive,
        messages: WholeMessages | None,
    ) -> None:
        """Creates the exchange.

        Args:
            plane: Answers the request.
            bounds: The limits.
            request: The request's record.
            encoding: The body's compression; empty for none.
            receive: Receives the request's ASGI messages.
            messages: Gives the body if all of it has arrived; None to use only `receive`.
        """
        self._request = request
        self._plane = plane
        self._bounds = bounds
        self._encoding = encoding
        self._receive = receive
        self._messages = messages

    def ask(
        self, scopes: Sequence[str], work: Callable[[bytes], Awaitable[Any]]
    ) -> Coroutine[Any, Any, Any]:
        """Returns the result of `work` on the body; see `DataPlane.answer`."""
        body: bytes | None = None
        if self._messages is not None and not self._encoding:
            body = self._messages.body(self._bounds.body_bytes)
        read = self._read if body is None else body
        return self._plane.answer(self._request, scopes, work, read, self._gone)

    async def _read(self, supervisor: Supervisor) -> bytes:
        begun = time.perf_counter()
        bounds, request = self._bounds, self._request
        supervisor.bound(bounds.body_seconds, self._slow)
        inflater = Inflater(bounds.inflated_bytes, self._encoding) if self._encoding else None
        received, more = 0, True
        chunks: list[bytes] = []
        while more:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise ClientGoneError
            chunk = message.get("body", b"")
            more = message.get("more_body", False)
            received += len(chunk)
            if received > bounds.body_bytes:
                raise too_large(bounds, linger=more)
            if inflater is not None:
                chunk = await inflater.feed(chunk, last=not more)
            self._plane.receive(request, len(chunk))
            chunks.append(chunk)
        if len(chunks) == 1:
            body = chunks[0]
        elif request.received_bytes < _THREAD_BYTES:
            body = b"".join(chunks)
        else:
            body = await asyncio.to_thread(b"".join, chunks)
        request.spent("read", time.perf_counter() - begun)
        return body

    def _slow(self) -> RefusedError:
        seconds = self._bounds.body_seconds
        return RefusedError(408, f"Request body must arrive within {seconds:g} seconds")

    async def _gone(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass


def too_large(bounds: HttpBounds, *, linger: bool) -> RefusedError:
    """Returns the refusal of a body that exceeds its limit as sent."""
    return RefusedError(413, f"Request body exceeds {bounds.body_bytes} bytes", linger=linger)
