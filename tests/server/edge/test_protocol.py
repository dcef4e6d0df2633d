"""Connections write an answer with few system calls."""

from __future__ import annotations

import asyncio
import contextlib
import socket

import pytest

from server.edge.http.protocol import GatheringTransport

HEAD, ROWS, FOUND = b"HTTP/1.1 200 OK\r\n\r\n", bytes(256_000), bytes(1_000)


class Recorder(asyncio.Transport):
    """A transport that keeps what each call wrote."""

    def __init__(self):
        super().__init__()
        self.writes: list[list[bytes]] = []
        self.closed = False

    def writelines(self, parts):
        self.writes.append(list(parts))

    def is_closing(self):
        return self.closed

    def close(self):
        self.closed = True


async def gather(*parts: bytes, close: bool = False) -> tuple[Recorder, list[int]]:
    """Writes parts; returns the transport, and the number of calls before the turn's end."""
    recorder = Recorder()
    transport = GatheringTransport(recorder, asyncio.get_running_loop())
    before = []
    for part in parts:
        transport.write(part)
        before.append(len(recorder.writes))
    if close:
        transport.close()
        assert recorder.closed
    await asyncio.sleep(0)
    return recorder, before


def test_a_head_and_its_body_are_one_write():
    recorder, before = asyncio.run(gather(HEAD, ROWS, FOUND))
    assert recorder.writes == [[HEAD, ROWS, FOUND]]
    assert before == [0, 0, 0]


def test_a_large_body_is_not_held_back():
    recorder, before = asyncio.run(gather(HEAD, ROWS, ROWS, ROWS))
    assert before == [0, 0, 1, 1]
    assert b"".join(b"".join(parts) for parts in recorder.writes) == HEAD + 3 * ROWS


def test_closing_writes_the_answer_first():
    recorder, _ = asyncio.run(gather(HEAD, close=True))
    assert recorder.writes == [[HEAD]]


def test_a_connection_that_closed_meanwhile_gets_nothing():
    async def run():
        recorder = Recorder()
        GatheringTransport(recorder, asyncio.get_running_loop()).write(HEAD)
        recorder.closed = True
        await asyncio.sleep(0)
        return recorder.writes

    assert asyncio.run(run()) == []


@pytest.mark.parametrize("uv", [True, False])
def test_a_socket_gets_all_bytes_in_order(uv):
    """Both event loops write gathered parts."""
    parts = [HEAD, memoryview(ROWS), b"x" * 400_000, FOUND]
    expected = b"".join(parts)

    async def run():
        ours, theirs = socket.socketpair()
        theirs.setblocking(False)
        loop = asyncio.get_running_loop()
        transport, _ = await loop.create_connection(asyncio.Protocol, sock=ours)
        gathering = GatheringTransport(transport, loop)
        for part in parts:
            gathering.write(part)
        gathering.close()
        received = b""
        while piece := await loop.sock_recv(theirs, 1 << 20):
            received += piece
        theirs.close()
        return received

    loop = pytest.importorskip("uvloop").new_event_loop() if uv else asyncio.new_event_loop()
    with contextlib.closing(loop):
        assert loop.run_until_complete(run()) == expected
