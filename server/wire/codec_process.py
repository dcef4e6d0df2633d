"""A process that decodes and encodes large bodies, and both ends of its connection.

Tensors and texts cross the connection as raw bytes, which the receiver uses without a copy. The
sending and the receiving thread handle the strings of a tensor in Python loops, not in one call of
C. So the gateway's event loop, which is another thread, can get the interpreter lock in between.
"""

import contextlib
import io
import os
import pickle
import resource
import subprocess
import sys
from collections.abc import Callable
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import Code, ServingError, invalid
from ..tensors import Array

# Address space of the process in bytes, far more than a body within the limits needs.
_MAX_MEMORY_BYTES = 6 << 30
_NICENESS = 10
# Larger bytes objects are sent separately, so that pickle does not copy them
# into a message.
_APART_BYTES = 64 << 10
# So many strings are joined in one call, which takes less than a millisecond.
_JOINED_STRINGS = 4096


class CodecProcess:
    """The gateway's end of one process. Only one thread may use `call` at a time."""

    def __init__(self) -> None:
        """Creates the object. The process starts with the first call."""
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: Connection | None = None
        self.usable = True

    def call(self, function: Callable[..., Any], arguments: tuple[object, ...]) -> Any:
        """Runs a function of a module in the process and returns its result. Blocks.

        Raises:
            ServingError: The function raised it, or INVALID_ARGUMENT if the work needs too much
                memory.
        """
        connection = self._connection or self._start()
        try:
            _send(connection, (function, *map(_apart, arguments)))
            kind, value = _receive(connection)
        except (OSError, EOFError):
            self.kill()
            self.wait()
            raise _too_large() from None
        if kind == "result":
            return value
        if kind == "refused":
            code, message = value
            raise ServingError(Code[code], message)
        if kind == "memory":
            self.kill()
            self.wait()
            raise _too_large()
        raise RuntimeError(f"a codec process failed: {value}")

    def kill(self) -> None:
        """Kills the process. A running call fails."""
        self.usable = False
        if self._process is not None:
            self._process.kill()

    def wait(self) -> None:
        """Waits for the end of a killed process. Freeing its memory takes a while."""
        if self._process is not None:
            self._process.wait()
        if self._connection is not None:
            self._connection.close()

    def _start(self) -> Connection:
        ours, theirs = Pipe()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-c", f"import {__name__} as m; m.main({theirs.fileno()})"],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                # Ctrl-C in a terminal signals all processes of the session. Only the gateway should
                # get it, because it ends this process itself.
                start_new_session=True,
                env={
                    **os.environ,
                    "OPENBLAS_NUM_THREADS": "1",
                    "PYTHONPATH": os.pathsep.join(
                        [str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")]
                    ),
                },
            )
        self._connection = ours
        if not self.usable:
            self._process.kill()
        return ours


def _too_large() -> ServingError:
    return invalid("The request needs too much memory to be read: send it in parts.")


class _Pickler(pickle.Pickler):
    """Packs the strings of a tensor as one bytes object."""

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, np.ndarray) and value.dtype == np.object_:
            flat = value.reshape(-1)
            lengths = np.empty(len(flat), np.int64)
            joined = []
            for start in range(0, len(flat), _JOINED_STRINGS):
                strings = flat[start : start + _JOINED_STRINGS].tolist()
                lengths[start : start + len(strings)] = [len(string) for string in strings]
                joined.append(b"".join(strings))
            return _strings, (_apart(b"".join(joined)), lengths, value.shape)
        return NotImplemented


class _Bytes:
    """A large bytes object for the other end, sent outside of the pickled message."""

    def __init__(self, content: bytes) -> None:
        self.content = content

    def __reduce__(self) -> tuple[Any, ...]:
        return bytes, (pickle.PickleBuffer(self.content),)


def _apart(value: Any) -> Any:
    if type(value) is tuple:
        return tuple(map(_apart, value))
    return _Bytes(value) if isinstance(value, bytes) and len(value) > _APART_BYTES else value


def _strings(joined: bytes, lengths: Array, shape: tuple[int, ...]) -> Array:
    array = np.empty(len(lengths), object)
    start = 0
    for index, length in enumerate(lengths.tolist()):
        array[index] = joined[start : start + length]
        start += length
    return array.reshape(shape)


def _send(connection: Connection, value: Any) -> None:
    buffers: list[pickle.PickleBuffer] = []
    stream = io.BytesIO()
    _Pickler(stream, protocol=5, buffer_callback=buffers.append).dump(value)
    connection.send_bytes(len(buffers).to_bytes(4, "little"))
    for part in (stream.getbuffer(), *(buffer.raw() for buffer in buffers)):
        connection.send_bytes(part)


def _receive(connection: Connection) -> Any:
    count = int.from_bytes(connection.recv_bytes(), "little")
    message = connection.recv_bytes()
    return pickle.loads(message, buffers=[connection.recv_bytes() for _ in range(count)])


def main(descriptor: int) -> None:
    """Runs the calls of a `CodecProcess` until the gateway closes its end."""
    resource.setrlimit(resource.RLIMIT_AS, (_MAX_MEMORY_BYTES, _MAX_MEMORY_BYTES))
    os.nice(_NICENESS)
    connection = Connection(descriptor)
    with contextlib.suppress(EOFError, OSError):
        while True:
            function, *arguments = _receive(connection)
            _send(connection, _answer(function, arguments))


def _answer(function: Callable[..., Any], arguments: list[Any]) -> tuple[str, Any]:
    try:
        return "result", _apart(function(*arguments))
    except ServingError as error:
        return "refused", (error.code.value, error.message)
    except MemoryError:
        return "memory", None
    except Exception as error:
        return "failed", f"{type(error).__name__}: {error}"
