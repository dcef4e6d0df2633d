"""Request timeouts from `X-Request-Timeout-Ms`, or gRPC's `grpc-timeout`."""

import re

from server.errors import invalid

_MILLISECONDS = re.compile(rb"[0-9]{1,9}")
_GRPC = re.compile(rb"([0-9]{1,8})([HMSmun])")
_UNIT_SECONDS = {b"H": 3600.0, b"M": 60.0, b"S": 1.0, b"m": 1e-3, b"u": 1e-6, b"n": 1e-9}


def timeout_seconds(milliseconds: bytes | None, grpc: bytes | None, most: float) -> float:
    """Returns the seconds that a request may take.

    Args:
        milliseconds: The header `x-request-timeout-ms`; takes precedence.
        grpc: The header `grpc-timeout`, e.g. `250m`.
        most: The gateway's own limit.

    Raises:
        ServingError: INVALID_ARGUMENT for a malformed header.

    Example:
        >>> timeout_seconds(b"250", None, 60.0), timeout_seconds(None, b"2M", 60.0)
        (0.25, 60.0)
    """
    if milliseconds is not None:
        if not _MILLISECONDS.fullmatch(milliseconds):
            raise invalid(
                "X-Request-Timeout-Ms must be a whole number of milliseconds. "
                f"Received: {milliseconds.decode('latin-1')}"
            )
        return min(int(milliseconds) / 1000, most)
    if grpc is not None:
        match = _GRPC.fullmatch(grpc)
        if not match:
            raise invalid(
                "grpc-timeout must be a number of up to 8 digits and one of H, M, S, m, u, n. "
                f"Received: {grpc.decode('latin-1')}"
            )
        return min(int(match[1]) * _UNIT_SECONDS[match[2]], most)
    return most
