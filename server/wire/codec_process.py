"""A process that decodes and encodes large bodies, and both ends of its pipes.

pickle writes large bytes and arrays to a pipe, and reads them from it, without a copy and without
the interpreter lock. The sending and the receiving thread handle the strings of a tensor in Python
loops, not in one call of C. So the gateway's event loop, which is another thread, can get the lock
in between.
"""

import contextlib
import os
import pickle
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import numpy as np

from ..errors import ServingError, invalid
from ..tensors import Array

# Address space of the process in bytes, far more than a body within the limits needs.
_MAX_MEMORY_BYTES = 6 << 30
_NICENESS = 10
# So many strings are joined in one call, which takes less than a millisecond.
_JOINED_STRINGS = 4096


class CodecProcess:
    """The gateway's end of one process. Only one thread may use `call` at a time."""

    def __init__(self) -> None:
        """Creates the object. The process starts with the first call."""
        self._process: subprocess.Popen[bytes] | None = None
        self._answers: IO[bytes] | None = None
        self.usable = True

    def call(self, function: Callable[..., Any], arguments: tuple[object, ...]) -> Any:
        """Runs a function of a module in the process and returns its result. Blocks.

        Raises:
            ServingError: The function raised it, or INVALID_ARGUMENT if the work needs too much
                memory.
        """
        process = self._process or self._start()
        assert process.stdin is not None
        assert self._answers is not None
        try:
            _send(process.stdin, (function, *arguments))
            answer, error = pickle.load(self._answers)
        except BaseException as failure:  # a pipe with a part of a message must not be used again
            self.kill()
            self.wait()
            if isinstance(failure, OSError | EOFError | pickle.UnpicklingError):
                text = "The request needs too much memory to be read: send it in parts."
                raise invalid(text) from None
            raise
        if error is not None:
            raise error
        return answer

    def kill(self) -> None:
        """Kills the process. A running call fails."""
        self.usable = False
        if self._process is not None:
            self._process.kill()

    def wait(self) -> None:
        """Waits for the end of a killed process. Freeing its memory takes a while."""
        if self._process is not None:
            self._process.communicate()
        if self._answers is not None:
            self._answers.close()

    def _start(self) -> "subprocess.Popen[bytes]":
        ours, theirs = os.pipe()
        self._answers = os.fdopen(ours, "rb")
        with os.fdopen(theirs, "wb"):
            self._process = subprocess.Popen(
                [sys.executable, "-c", f"import {__name__} as m; m.main({theirs})"],
                pass_fds=[theirs],
                stdin=subprocess.PIPE,
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
        if not self.usable:
            self._process.kill()
        return self._process


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
            return _strings, (b"".join(joined), lengths, value.shape)
        return NotImplemented


def _strings(joined: bytes, lengths: Array, shape: tuple[int, ...]) -> Array:
    array = np.empty(len(lengths), object)
    start = 0
    for index, length in enumerate(lengths.tolist()):
        array[index] = joined[start : start + length]
        start += length
    return array.reshape(shape)


def _send(pipe: IO[bytes], value: Any) -> None:
    _Pickler(pipe, protocol=5).dump(value)
    pipe.flush()


def main(descriptor: int) -> None:
    """Runs the calls of a `CodecProcess` until the gateway closes its end."""
    resource.setrlimit(resource.RLIMIT_AS, (_MAX_MEMORY_BYTES, _MAX_MEMORY_BYTES))
    os.nice(_NICENESS)
    answers = os.fdopen(descriptor, "wb")
    with contextlib.suppress(EOFError, OSError):
        while True:
            function, *arguments = pickle.load(sys.stdin.buffer)
            answer: Any = None
            error: Exception | None = None
            try:
                answer = function(*arguments)
            except MemoryError:
                os._exit(1)
            except ServingError as refused:
                error = refused
            except Exception as failure:
                text = f"a codec process failed: {type(failure).__name__}: {failure}"
                error = RuntimeError(text)
            _send(answers, (answer, error))
