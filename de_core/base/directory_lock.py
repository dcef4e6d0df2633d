"""Locks a directory while a checkpoint in it is replaced."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator


@contextlib.contextmanager
def alone_in(folder: str) -> Iterator[None]:
    """Locks a directory against other callers of this function, in any thread or process.

    On remote file systems, and on those without locks, nothing is locked.
    """
    descriptor = None if "://" in folder else os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if descriptor is not None:
            with contextlib.suppress(OSError):  # the file system has no locks
                fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        if descriptor is not None:
            os.close(descriptor)
