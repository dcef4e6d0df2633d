"""A connection in memory that keeps what the gateway writes."""

from __future__ import annotations

import asyncio


class RecordingTransport(asyncio.Transport):
    """A transport that keeps what each call wrote."""

    def __init__(self):
        super().__init__({"sockname": ("127.0.0.1", 1), "peername": ("127.0.0.1", 2)})
        self.writes: list[list[bytes]] = []
        self.closed = False
        self.reads = True

    @property
    def received(self) -> bytes:
        """All bytes that the client got."""
        return b"".join(b"".join(map(bytes, parts)) for parts in self.writes)

    def pause_reading(self):
        self.reads = False

    def resume_reading(self):
        self.reads = True

    def write(self, data):
        self.writes.append([data])

    def writelines(self, parts):
        self.writes.append(list(parts))

    def is_closing(self):
        return self.closed

    def close(self):
        self.closed = True
