"""Where decoding and encoding run, so that nobody waits for another's large body.

C decoders hold Python's interpreter lock until they are done. So small work runs in the event
loop, work of some milliseconds on a thread, and large work in another process, which is killed
when the request's deadline passes or its client leaves.
"""

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from server.dataplane.codec_process import CodecProcess
from server.errors import Code, ServingError
from server.request import current_request
from server.tensors import Tensors

T = TypeVar("T")

# Bytes of JSON up to which decoding takes less than a detour over a thread is worth.
_INLINE_BYTES = 32 << 10
# Bytes of JSON up to which a decoder holds the interpreter for a few milliseconds only.
_THREAD_BYTES = 512 << 10
_PROCESSES = 2
_MAX_WAITING = 32


class Codec:
    """Runs decoders and encoders. Used from one event loop."""

    def __init__(self) -> None:
        """Makes the codec; threads and processes start when they are first needed."""
        self._idle: list[CodecProcess] = []
        self._busy: set[CodecProcess] = set()
        self._waiting = 0
        self._open()

    def _open(self) -> None:
        self._turns = asyncio.Semaphore(_PROCESSES)
        self._threads = ThreadPoolExecutor(_PROCESSES + 2, thread_name_prefix="codec")

    async def run(self, size: int, stage: str, function: Callable[..., T], *arguments: object) -> T:
        """Runs a function of a module where its work disturbs nobody.

        Args:
            size: The work, in bytes of JSON that would take as long.
            stage: What its time is counted as.
            function: A function of a module: another process imports it by its name.
            *arguments: Its arguments; they and the result can be pickled.

        Raises:
            ServingError: What the function raises; RESOURCE_EXHAUSTED if too much large work
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
            current_request().spent(stage, time.perf_counter() - begun)

    async def _run_apart(self, function: Callable[..., T], *arguments: object) -> T:
        if self._waiting >= _MAX_WAITING:
            raise ServingError(
                Code.RESOURCE_EXHAUSTED,
                f"Too many large requests wait to be read: {self._waiting}. Try again later.",
                retry_after=1.0,
            )
        self._waiting += 1
        try:
            await self._turns.acquire()
        finally:
            self._waiting -= 1
        process = self._idle.pop() if self._idle else CodecProcess()
        self._busy.add(process)
        loop = asyncio.get_running_loop()
        try:
            result = await loop.run_in_executor(self._threads, process.call, function, arguments)
        except asyncio.CancelledError:
            process.kill()
            raise
        finally:
            self._busy.discard(process)
            if process.usable:
                self._idle.append(process)
            self._turns.release()
        return result

    async def close(self) -> None:
        """Ends the processes and threads; they start again when they are needed again."""
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
    """Returns the work of writing tensors as JSON, in bytes of it."""
    return sum(array.size * 8 for array in tensors.values())
