"""HTTP/1.1 connections that must say what they want in good time.

uvicorn bounds how long an idle connection is kept, but not how long the head of a request may
take: a client that sends a byte a minute would hold a connection for ever.
"""

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol


def protocol_with_head_timeout(seconds: float) -> type[asyncio.Protocol]:
    """Returns uvicorn's protocol, closing connections whose head takes longer than `seconds`."""

    class HeadTimeoutProtocol(HttpToolsProtocol):
        """uvicorn's protocol with a timer from the first byte of a head to its last."""

        _head_timer: asyncio.TimerHandle | None = None

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self._start_head_timer()

        def connection_lost(self, exc: Exception | None) -> None:
            self._stop_head_timer()
            super().connection_lost(exc)

        def on_message_begin(self) -> None:
            self._start_head_timer()
            super().on_message_begin()

        def on_headers_complete(self) -> None:
            self._stop_head_timer()
            super().on_headers_complete()

        def _start_head_timer(self) -> None:
            if self._head_timer is None:
                self._head_timer = self.loop.call_later(seconds, self._head_late)

        def _stop_head_timer(self) -> None:
            if self._head_timer is not None:
                self._head_timer.cancel()
                self._head_timer = None

        def _head_late(self) -> None:
            self._head_timer = None
            if self.transport is not None and not self.transport.is_closing():
                self.transport.close()

    return HeadTimeoutProtocol
