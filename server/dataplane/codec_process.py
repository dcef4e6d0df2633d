"""A process that decodes and encodes large bodies, and both ends of its socket.

Tensors and texts cross the socket as raw bytes, which the receiver uses without a copy. The sending
and the receiving thread handle the strings of a tensor in Python loops, not in one call of C. So
the gateway's event loop, which is another thread, can get the interpreter lock in between.
"""

import io
import os
import pickle
import resource
import socket
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import Code, ServingError, invalid
from ..tensors import Array

_SIZES = struct.Struct("<Q")
# Address space of the process in bytes, far more than a body within the limits needs.
_MAX_MEMORY_BYTES = 6 << 30
_NICENESS = 10
# Larger bytes objects are sent through the socket separately, so that pickle does not copy them
# into a message.
_APART_BYTES = 64 << 10
# So many strings are joined in one call, which takes less than a millisecond.
_JOINED_STRINGS = 4096


class CodecProcess:
    """The gateway's end of one process. Only one thread may use `call` at a time."""

    def __init__(self) -> None:
        """Creates the object. The process starts with the first call."""
        self._process: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None
        self.usable = True

    def call(self, function: Callable[..., Any], arguments: tuple[object, ...]) -> Any:
        """Runs a function of a module in the process and returns its result. Blocks.

        Raises:
            ServingError: The function raised it, or INVALID_ARGUMENT if the work needs too much
                memory.
        """
        connection = self._socket or self._start()
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
            raise ServingError(Code(code), message)
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
        if self._socket is not None:
            self._socket.close()

    def _start(self) -> socket.socket:
        ours, theirs = socket.socketpair()
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
        self._socket = ours
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
    """A large bytes object for the other end of the socket, sent outside of the pickled message."""

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


def _send(connection: socket.socket, value: Any) -> None:
    buffers: list[pickle.PickleBuffer] = []
    stream = io.BytesIO()
    _Pickler(stream, protocol=5, buffer_callback=buffers.append).dump(value)
    parts = [stream.getbuffer(), *(buffer.raw() for buffer in buffers)]
    connection.sendall(_SIZES.pack(len(parts)))
    for part in parts:
        connection.sendall(_SIZES.pack(part.nbytes))
        connection.sendall(part)


def _receive(connection: socket.socket) -> Any:
    (count,) = _SIZES.unpack(_read(connection, _SIZES.size))
    parts = []
    for _ in range(count):
        (size,) = _SIZES.unpack(_read(connection, _SIZES.size))
        parts.append(_read(connection, size))
    return pickle.loads(parts[0], buffers=parts[1:])


def _read(connection: socket.socket, size: int) -> bytes:
    # The system fills the memory of the result while other threads run. A `bytearray` would first
    # be filled with zeros, during which no other thread runs.
    content = connection.recv(size, socket.MSG_WAITALL) if size else b""
    while len(content) < size:  # a signal may interrupt the call
        more = connection.recv(size - len(content), socket.MSG_WAITALL)
        if not more:
            raise EOFError
        content += more
    return content


def main(descriptor: int) -> None:
    """Runs the calls of a `CodecProcess` until the gateway closes its end."""
    resource.setrlimit(resource.RLIMIT_AS, (_MAX_MEMORY_BYTES, _MAX_MEMORY_BYTES))
    os.nice(_NICENESS)
    connection = socket.socket(fileno=descriptor)
    while True:
        try:
            function, *arguments = _receive(connection)
        except EOFError:
            return
        try:
            answer = ("result", _apart(function(*arguments)))
        except ServingError as error:
            answer = ("refused", (error.code.value, error.message))
        except MemoryError:
            answer = ("memory", None)
        except Exception as error:
            answer = ("failed", f"{type(error).__name__}: {error}")
        _send(connection, answer)
