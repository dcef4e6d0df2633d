"""uvicorn's HTTP/1.1 protocol with limits on the time and size of what no request owns.

uvicorn limits how long an idle connection is kept, but neither the time nor the size of a request's
head. A client that sends one byte per minute would hold a connection forever, and httptools keeps
all bytes of a head, or of a chunked body's trailers, until their end. A client that reads one byte
per minute would hold its answer as long.
"""

import asyncio
import logging
import resource
import time
from collections.abc import Callable
from typing import Any

import orjson
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

_LOG = logging.getLogger("server")
# The log warns of few free file descriptors at most once in this many seconds.
_WARN_SECONDS = 10.0
_SCARCE = 0.9
# The parser reads this many bytes at once, and no more while requests wait for the one before them.
# Otherwise it would spend a tenth of a second on a piece full of small requests.
_PARSED_BYTES = 16 << 10


class BoundedProtocol(HttpToolsProtocol):
    """Closes connections that exceed a limit.

    Attributes:
        seconds: Seconds from the first byte of a head to its last. The rest of a body that nobody
            reads counts as such a byte.
        write_seconds: Seconds for a client to take a piece of an answer that fills the buffers.
        max_bytes: Largest number of bytes that may arrive in a row without completing a head, a
            chunk of a body, or a message.
        waiting: Received bytes that are read after the requests before them.
    """

    seconds: float
    write_seconds: float
    max_bytes: int
    _warned = -_WARN_SECONDS

    waiting = b""
    _bytes = 0
    # True after a head that asks for an upgrade. The parser drops the body of such a request.
    _is_deaf = False

    def connection_made(self, transport: Any) -> None:
        """Begins a connection."""
        super().connection_made(transport)
        if self.client and self.client[0].startswith("::ffff:") and "." in self.client[0]:
            # An IPv4 client of an IPv6 socket. gRPC and --trusted-proxies use its IPv4 address.
            self.client = self.client[0].removeprefix("::ffff:"), self.client[1]
        self.flow = _Flow(self, transport)
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._start_timer("head", self.seconds, transport.close)
        self._warn_of_files(transport.get_extra_info("socket"))

    def connection_lost(self, exc: Exception | None) -> None:
        """Ends a connection."""
        self._stop_timer("head")
        self._stop_timer("answer")
        super().connection_lost(exc)
        # After an error, uvicorn would keep the connection in memory until its timer ends.
        self._unset_keepalive_if_required()

    def pause_writing(self) -> None:
        """Waits for the client to take what was written, but not forever.

        The transport calls this again only after `resume_writing`. A closed connection would wait
        too, so it is aborted.
        """
        super().pause_writing()
        self._start_timer("answer", self.write_seconds, self.transport.abort)

    def resume_writing(self) -> None:
        """Writes on. A connection that closes still has to send the rest."""
        if not self.transport.is_closing():
            self._stop_timer("answer")
        super().resume_writing()

    def data_received(self, data: bytes) -> None:
        """Reads bytes, unless earlier bytes wait."""
        if self._is_deaf:
            return
        if self.waiting:
            self.waiting += data
        else:
            self._read(data)

    def on_response_complete(self) -> None:
        """Reads the bytes that waited for the answer."""
        super().on_response_complete()
        if self.transport.is_closing():  # once the client has taken the rest
            self._start_timer("answer", self.write_seconds, self.transport.abort)
        if self.waiting and not self.pipeline:
            self.loop.call_soon(self._read_waiting)

    def _read_waiting(self) -> None:
        waiting, self.waiting = self.waiting, b""
        if not self.transport.is_closing():
            self.flow.resume_reading()
            self._read(waiting)

    def _read(self, data: bytes) -> None:
        at = 0
        while at < len(data) and not (self.pipeline or self._ends):
            self._parse(data[at : at + _PARSED_BYTES])
            at += _PARSED_BYTES
        if at < len(data) and not self._ends:
            self.waiting = data[at:]
            self.flow.pause_reading()

    def _parse(self, data: bytes) -> None:
        self._bytes += len(data)
        super().data_received(data)
        cycle = self.cycle
        # uvicorn creates a new scope when a head begins, and a new cycle when it is complete.
        head_is_complete = cycle is not None and cycle.scope is self.scope
        # While requests wait, nothing is read, so the client cannot be late.
        if not self.pipeline and (not head_is_complete or cycle.response_complete):
            self._start_timer("head", self.seconds, self.transport.close)
        if self._bytes > self.max_bytes and not self.transport.is_closing():
            if cycle is None or cycle.response_complete:
                body = orjson.dumps({"error": f"Request head exceeds {self.max_bytes} bytes"})
                self.transport.write(
                    b"HTTP/1.1 431 Request Header Fields Too Large\r\n"
                    b"content-type: application/json\r\nconnection: close\r\n"
                    b"content-length: %d\r\n\r\n%b" % (len(body), body)
                )
            self.transport.close()

    @property
    def _ends(self) -> bool:
        return self._is_deaf or self.transport.is_closing()

    def on_headers_complete(self) -> None:
        """Ends a head."""
        super().on_headers_complete()
        self._bytes = 0
        self._stop_timer("head")

    def _unsupported_upgrade_warning(self) -> None:
        # uvicorn calls this after such a head. The bytes after the head belong to no request.
        self._is_deaf = True
        self.cycle.keep_alive = False

    def on_body(self, body: bytes) -> None:
        """Takes a part of a body."""
        self._bytes = 0
        super().on_body(body)

    def _start_timer(self, name: str, seconds: float, late: Callable[[], None]) -> None:
        if name not in self._timers:
            self._timers[name] = self.loop.call_later(seconds, late)

    def _stop_timer(self, name: str) -> None:
        if timer := self._timers.pop(name, None):
            timer.cancel()

    def _warn_of_files(self, connection: Any) -> None:
        """Logs a warning if the process has almost as many open files as it may have."""
        most, now = resource.getrlimit(resource.RLIMIT_NOFILE)[0], time.monotonic()
        if connection is None or most < 0 or now < type(self)._warned + _WARN_SECONDS:
            return
        # The system gives the lowest free number to a new file.
        if (files := connection.fileno()) > most * _SCARCE:
            type(self)._warned = now
            _LOG.warning(
                "The process may have %d open files, and %d are open: the system refuses "
                "connections beyond. Raise `ulimit -n`, or close idle connections.",
                most,
                files,
            )


class _Flow(FlowControl):
    """Reads nothing while bytes wait. uvicorn goes on with every request that waits for a body."""

    def __init__(self, protocol: BoundedProtocol, transport: asyncio.Transport) -> None:
        super().__init__(transport)
        self._protocol = protocol

    def resume_reading(self) -> None:
        if not self._protocol.waiting:
            super().resume_reading()
