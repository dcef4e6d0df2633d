"""How the gateway's process keeps the memory that it frees."""

import contextlib
import ctypes

# The numbers of glibc's <malloc.h>.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3


def keep_freed_memory() -> None:
    """Lets glibc's `malloc` keep the memory of a large body for the next one.

    Otherwise the system backs it page by page for each request. This took half of the time for
    which a gRPC message of 24 MB holds up the event loop.
    """
    with contextlib.suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_M_MMAP_THRESHOLD, 32 << 20)
        mallopt(_M_TRIM_THRESHOLD, 256 << 20)
