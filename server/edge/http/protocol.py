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
from .head import KEPT_BYTES, Head, head_of
from .idle_timer import IdleTimer

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

    __slots__ = ("_cycle", "head")

    def __init__(self, cycle: RequestResponseCycle, head: Head | None) -> None:
        """Creates the messages of uvicorn's record of one request.

        Args:
            cycle: The record.
            head: The kept head of the request; None if it is not kept.
        """
        self._cycle = cycle
        self.head = head

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
    """uvicorn's protocol, with less work for each request.

    A request that arrived whole is answered at once, without a task. The parser does not run for a
    request that repeats the head of the request before.
    """

    _reads = False
    _waiting: tuple[RequestResponseCycle, Any] | None = None
    # True if the parser is between two requests.
    _rests = True
    # The bytes of the last head that the parser read.
    _seen = b""
    # The last head that came twice in a row.
    _head: Head | None = None
    # Bytes to come of the body of a request that the parser does not see.
    _left = 0
    _idle: IdleTimer

    def connection_made(self, transport: Any) -> None:
        """Begins a connection."""
        super().connection_made(transport)
        self._idle = IdleTimer(self.loop, self.timeout_keep_alive, self.timeout_keep_alive_handler)

    def connection_lost(self, exc: Exception | None) -> None:
        """Ends a connection."""
        super().connection_lost(exc)
        self._idle.cancel()

    def data_received(self, data: bytes) -> None:
        """Reads bytes, and starts the request that they complete."""
        rested, self._reads = self._rests, True
        super().data_received(data)
        cycle = self.cycle
        self._rests = cycle is not None and cycle.scope is self.scope and not cycle.more_body
        if self._waiting is not None:
            # If the last request waits for no others, it is the first one in `data`.
            if rested and cycle is self._waiting[0]:
                self._keep_head(cycle, data)
            self._start_waiting()
        self._reads = False

    def repeat(self, data: bytes) -> bool:
        """Reads bytes without the parser, if they belong to a request that repeats the kept head.

        Returns:
            False, and does nothing, for other bytes.
        """
        if self._left:
            self._read_body(data)
            return True
        head = self._head
        if (
            head is None
            or not self._rests
            or not self.cycle.response_complete
            or not head.begins(data)
        ):
            return False
        self._idle.stop()
        scope: Any = head.scope()
        scope["state"] = self.app_state.copy()
        self.scope = scope
        self.cycle = cycle = RequestResponseCycle(
            scope=scope,
            transport=self.transport,
            flow=self.flow,
            logger=self.logger,
            access_logger=self.access_logger,
            access_log=self.access_log,
            default_headers=self.server_state.default_headers,
            message_event=asyncio.Event(),
            expect_100_continue=False,
            keep_alive=True,
            on_response=self.on_response_complete,
        )
        scope[WHOLE] = WholeMessages(cycle, head)
        body, self._left = head.split(data)
        if self._left:
            self._rests = False
            if body:
                self.on_body(body)
            super()._start_asgi_task(cycle, self.app)
        else:
            cycle.body = body  # type: ignore[assignment]
            cycle.more_body = False
            cycle.message_event.set()
            self._start_whole(cycle, self.app)
        return True

    def _read_body(self, data: bytes) -> None:
        self._idle.stop()
        piece, rest = data[: self._left], data[self._left :]
        self._left -= len(piece)
        self.on_body(piece)
        if not self._left:
            self._rests = True
            self.on_message_complete()
        if rest:
            self.data_received(rest)

    def on_headers_complete(self) -> None:
        """Creates the record of a request."""
        super().on_headers_complete()
        scope: Any = self.scope
        scope[WHOLE] = WholeMessages(self.cycle, None)

    def on_response_complete(self) -> None:
        """Starts the next pipelined request, or waits for another one."""
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            return
        self.flow.resume_reading()
        if self.pipeline:
            self._start_asgi_task(*self.pipeline.pop())
        else:
            self._idle.start()

    def _unset_keepalive_if_required(self) -> None:
        # uvicorn calls this when bytes arrive.
        self._idle.stop()

    def _keep_head(self, cycle: RequestResponseCycle, data: bytes) -> None:
        """Keeps the head of a request that begins with `data`, when the head comes again."""
        size = len(data) - len(cycle.body)
        if size > KEPT_BYTES or not cycle.keep_alive or self.limit_concurrency is not None:
            return
        seen, self._seen = self._seen, data[:size]
        if self._seen == seen:
            scope: Any = cycle.scope.copy()
            messages: WholeMessages = scope.pop(WHOLE)
            head = head_of(seen, scope)
            if head is not None:
                self._head = messages.head = head

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
                self._start_whole(cycle, app)

    def _start_whole(self, cycle: RequestResponseCycle, app: Any) -> None:
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

        def data_received(self, data: bytes) -> None:
            if self.repeat(data):
                self._begun, self._idle_bytes = self.cycle, 0
                return
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
