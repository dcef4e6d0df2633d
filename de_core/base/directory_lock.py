"""Keeping others out of a directory for the moment in which a checkpoint is replaced."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator


@contextlib.contextmanager
def alone_in(folder: str) -> Iterator[None]:
    """Keeps other threads and processes out that do the same, where the file system has locks.

    Args:
        folder: A directory. On file systems that TensorFlow alone knows nobody is kept out.
    """
    descriptor = None if "://" in folder else os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if descriptor is not None:
            with contextlib.suppress(OSError):  # a file system without locks
                fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        if descriptor is not None:
            os.close(descriptor)
