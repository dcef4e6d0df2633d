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

    __slots__ = ("_bounds", "_encoding", "_plane", "_receive", "more", "request")

    def __init__(
        self,
        plane: DataPlane,
        bounds: HttpBounds,
        request: Request,
        encoding: bytes,
        receive: Receive,
    ) -> None:
        """Creates the exchange.

        Args:
            plane: Answers the request.
            bounds: The limits.
            request: The request's record.
            encoding: The body's compression; empty for none.
            receive: Receives the request's ASGI messages.
        """
        self.request = request
        #: True until the last piece of the body has arrived.
        self.more = True
        self._plane = plane
        self._bounds = bounds
        self._encoding = encoding
        self._receive = receive

    def ask(
        self, scopes: Sequence[str], work: Callable[[bytes], Awaitable[Any]]
    ) -> Coroutine[Any, Any, Any]:
        """Returns the result of `work` on the body; see `DataPlane.answer`."""
        return self._plane.answer(self.request, scopes, self._read, work, self._gone)

    async def _read(self, supervisor: Supervisor) -> bytes:
        begun = time.perf_counter()
        bounds, request = self._bounds, self.request
        supervisor.bound(bounds.body_seconds, self._slow)
        inflater = Inflater(bounds.inflated_bytes, self._encoding) if self._encoding else None
        received = 0
        chunks: list[bytes] = []
        while self.more:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise ClientGoneError
            chunk = message.get("body", b"")
            self.more = message.get("more_body", False)
            received += len(chunk)
            if received > bounds.body_bytes:
                raise too_large(bounds, linger=self.more)
            if inflater is not None:
                chunk = await inflater.feed(chunk, last=not self.more)
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
