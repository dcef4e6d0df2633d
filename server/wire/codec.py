"""Chooses where bodies are decoded and encoded, so that large ones delay nobody else.

C decoders hold Python's interpreter lock until they finish, so a thread does not help for a large
body. Small bodies are decoded in the event loop, bodies that take some milliseconds on a thread,
and large bodies in another process. That process is killed when the request's deadline passes or
its client disconnects.
"""

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from operator import attrgetter
from typing import TypeVar

from ..errors import too_many
from ..request import current_request
from ..tensors import Tensors
from .codec_process import CodecProcess

T = TypeVar("T")

# Decoding this many bytes of JSON takes about as long as handing it to a thread.
_INLINE_BYTES = 32 << 10
# Decoding this many bytes of JSON holds the interpreter lock for a few milliseconds. Larger bodies
# go to another process.
_THREAD_BYTES = 512 << 10
_PROCESSES = 2
_MAX_WAITING = 32


class Codec:
    """Runs decoders and encoders. Used from one event loop."""

    def __init__(self) -> None:
        """Creates the codec. Threads and processes start on first use."""
        self._idle: list[CodecProcess] = []
        self._busy: set[CodecProcess] = set()
        self._asked = 0
        self._open()

    def _open(self) -> None:
        self._turns = asyncio.Semaphore(_PROCESSES)
        self._threads = ThreadPoolExecutor(_PROCESSES + 2, thread_name_prefix="codec")

    async def run(self, size: int, stage: str, function: Callable[..., T], *arguments: object) -> T:
        """Runs a function of a module where it blocks no other request.

        Args:
            size: The amount of work: the number of bytes of JSON that take as long to decode.
            stage: The stage of the request that the time is added to.
            function: A function of a module. Another process imports it by name.
            *arguments: Its arguments. They and the result must be picklable.

        Raises:
            ServingError: The function raised it; RESOURCE_EXHAUSTED if too much large work
                waits; INVALID_ARGUMENT if the work needs too much memory.
        """
        begun = time.perf_counter()
        try:
            if size <= _INLINE_BYTES:
                return function(*arguments)
            if size <= _THREAD_BYTES:
                loop = asyncio.get_running_loop()
                return await loop.run_in_executor(self._threads, function, *arguments)
            return await self._run_apart(function, *arguments)
        finally:
            current_request().stages[stage] += time.perf_counter() - begun

    async def _run_apart(self, function: Callable[..., T], *arguments: object) -> T:
        if self._asked >= _PROCESSES + _MAX_WAITING:
            raise too_many("large requests wait to be read", self._asked - _PROCESSES)
        self._asked += 1
        try:
            async with self._turns:
                process = self._idle.pop() if self._idle else CodecProcess()
                self._busy.add(process)
                loop = asyncio.get_running_loop()
                try:
                    return await loop.run_in_executor(
                        self._threads, process.call, function, arguments
                    )
                except asyncio.CancelledError:
                    process.kill()
                    raise
                finally:
                    self._busy.discard(process)
                    if process.usable:
                        self._idle.append(process)
        finally:
            self._asked -= 1

    async def close(self) -> None:
        """Ends the processes and threads. They start again on the next use."""
        idle, threads = self._idle, self._threads
        for process in (*idle, *self._busy):
            process.kill()
        self._idle = []
        self._open()

        def wait() -> None:
            threads.shutdown()
            for process in idle:
                process.wait()

        await asyncio.get_running_loop().run_in_executor(None, wait)


def work_of(tensors: Tensors) -> int:
    """Returns the cost of writing tensors as JSON: bytes of JSON that take as long to decode."""
    return 8 * sum(map(attrgetter("size"), tensors.values()))
