"""HTTP/1.1 connections with limits on the time and size of requests.

uvicorn limits how long an idle connection is kept, but neither the time nor the size of a request's
head. A client that sends one byte per minute would hold a connection forever, and httptools keeps
all bytes of a head, or of a chunked body's trailers, until their end.
"""

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any

import orjson
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from ...dataplane.start import start_now

# Gathered bytes that wait for the end of the event loop's turn. More bytes are written at once, so
# that the transport notices a slow client. An answer's head and its first piece stay below.
_GATHERED_BYTES = 320 << 10
# Key of a scope: the `WholeMessages` of its request. Only our own protocol sets it.
WHOLE = "gateway.whole"


class GatheringTransport(asyncio.Transport):
    """Writes an answer's head and body with one system call.

    uvicorn writes them one after the other. uvloop 0.23 sends each write at once, and so wakes the
    client several times per answer.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        """Creates the transport; `transport` belongs to `loop`."""
        super().__init__()
        self._transport = transport
        self._loop = loop
        self._parts: list[Any] = []
        self._size = 0
        self.is_closing = transport.is_closing  # type: ignore[method-assign]

    def write(self, data: Any) -> None:
        """Writes data before the event loop waits for events."""
        parts = self._parts
        if not parts:
            self._loop.call_soon(self._flush)
        parts.append(data)
        self._size += len(data)
        if self._size > _GATHERED_BYTES:
            self._flush()

    def writelines(self, list_of_data: Iterable[Any]) -> None:
        """Writes parts as `write` does, with less work per part."""
        parts = self._parts
        if not parts:
            self._loop.call_soon(self._flush)
        parts.extend(list_of_data)
        self._size = sum(map(len, parts))
        if self._size > _GATHERED_BYTES:
            self._flush()

    def close(self) -> None:
        """Writes what was gathered, and closes the connection."""
        self._flush()
        self._transport.close()

    def _flush(self) -> None:
        parts = self._parts
        if parts:
            self._parts, self._size = [], 0
            if not self.is_closing():
                self._transport.writelines(parts)


class WholeMessages:
    """Takes a request's whole body and writes its whole answer, without ASGI's messages.

    With messages, uvicorn checks each header again, and writes each part in a coroutine of its own.
    That was a fifth of the CPU time that a lookup in bytes took in Python.
    """

    __slots__ = ("_cycle",)

    def __init__(self, cycle: RequestResponseCycle) -> None:
        """Creates the messages of uvicorn's record of one request."""
        self._cycle = cycle

    def body(self, max_bytes: int) -> bytes | None:
        """Returns the body; None if it is larger, or not all of it has arrived."""
        cycle = self._cycle
        if cycle.more_body or cycle.disconnected or len(cycle.body) > max_bytes:
            return None
        body = bytes(cycle.body)
        cycle.body = bytearray()
        return body

    def answer(self, head: bytes, parts: Sequence[Any]) -> bool:
        """Writes an answer.

        Args:
            head: The status line and all headers, each with its line end.
            parts: The parts of the body: bytes, or other buffers of bytes.

        Returns:
            False, and writes nothing, if only ASGI's messages can do it: the connection closes
            after the answer, the client reads slowly, or it wants no body.
        """
        cycle = self._cycle
        if (
            not cycle.keep_alive
            or cycle.disconnected
            or cycle.flow.write_paused
            or cycle.scope["method"] == "HEAD"
        ):
            return False
        cycle.response_started = cycle.response_complete = True
        for header in cycle.default_headers:
            head += b"%b: %b\r\n" % header
        cycle.transport.writelines((head + b"\r\n", *parts))
        cycle.message_event.set()
        cycle.on_response()
        return True


class PromptProtocol(HttpToolsProtocol):
    """uvicorn's protocol, which answers a request that arrived whole at once, without a task."""

    _reads = False
    _waiting: tuple[RequestResponseCycle, Any] | None = None

    def data_received(self, data: bytes) -> None:
        """Reads bytes, and starts the request that they complete."""
        self._reads = True
        super().data_received(data)
        if self._waiting is not None:
            self._start_waiting()
        self._reads = False

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        # uvicorn calls this when the head is complete. The body may be in the same piece.
        if self._reads:
            self._waiting = (cycle, app)
        else:
            super()._start_asgi_task(cycle, app)

    def _start_waiting(self) -> None:
        # A request that is answered at once lets the next pipelined request wait here.
        while self._waiting is not None:
            (cycle, app), self._waiting = self._waiting, None
            if cycle.more_body:
                super()._start_asgi_task(cycle, app)
            else:
                task = start_now(self.loop, cycle.run_asgi(app))
                if task is not None:
                    task.add_done_callback(self.tasks.discard)
                    self.tasks.add(task)


def bounded_protocol(seconds: float, max_bytes: int) -> type[asyncio.Protocol]:
    """Returns uvicorn's protocol with limits on the bytes before, between and after bodies.

    Args:
        seconds: Seconds from the first byte of a head to its last.
        max_bytes: Largest number of bytes that may arrive in a row without completing a head, a
            chunk of a body, or a message.
    """
    body = orjson.dumps({"error": f"Request head exceeds {max_bytes} bytes"})
    too_large = (
        b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-type: application/json\r\n"
        b"connection: close\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)
    )

    class BoundedProtocol(PromptProtocol):
        """Closes connections that exceed a limit.

        Most heads arrive in one piece. Only other heads get a timer.
        """

        _head_timer: asyncio.TimerHandle | None = None
        _idle_bytes = 0
        _begun: RequestResponseCycle | None = None

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self.transport = GatheringTransport(transport, self.loop)
            self._head_timer = self.loop.call_later(seconds, self._head_late)

        def connection_lost(self, exc: Exception | None) -> None:
            self._stop_head_timer()
            super().connection_lost(exc)
            # uvicorn 0.54 lets the keep-alive timer run on if the client reset the connection. The
            # timer would keep the connection and its last request in memory.
            self._unset_keepalive_if_required()

        def data_received(self, data: bytes) -> None:
            self._idle_bytes += len(data)
            super().data_received(data)
            cycle = self.cycle
            if cycle is not None and cycle.scope is self.scope:
                # uvicorn creates a new cycle from each complete head.
                if cycle is not self._begun:
                    self._begun = cycle
                    self._idle_bytes = 0
                    if self._head_timer is not None:
                        self._stop_head_timer()
            elif self._head_timer is None:
                self._head_timer = self.loop.call_later(seconds, self._head_late)
            if self._idle_bytes > max_bytes and not self.transport.is_closing():
                if cycle is None or cycle.response_complete:
                    self.transport.write(too_large)
                self.transport.close()

        def on_headers_complete(self) -> None:
            super().on_headers_complete()
            scope: Any = self.scope
            scope[WHOLE] = WholeMessages(self.cycle)

        def on_body(self, body: bytes) -> None:
            self._idle_bytes = 0
            super().on_body(body)

        def _stop_head_timer(self) -> None:
            if self._head_timer is not None:
                self._head_timer.cancel()
                self._head_timer = None

        def _head_late(self) -> None:
            self._head_timer = None
            if self.transport is not None and not self.transport.is_closing():
                self.transport.close()

    return BoundedProtocol
