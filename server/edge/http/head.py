"""The head of a request, kept for the next request of its connection.

Most clients repeat a head byte by byte. The same bytes give the same request, so neither the parser
nor the checks that depend on the head alone need to run again.
"""

from collections.abc import MutableMapping
from typing import Any

# Longer heads are parsed each time, because each open connection keeps one.
KEPT_BYTES = 4096
_END = b"\r\n\r\n"
# Requests with these headers are parsed each time.
_UNKEPT = frozenset((b"transfer-encoding", b"expect", b"upgrade"))


class Head:
    """A parsed head."""

    __slots__ = ("_bytes", "_request_bytes", "_scope", "entry")

    def __init__(self, head: bytes, body_bytes: int, scope: MutableMapping[str, Any]) -> None:
        """Creates the head.

        Args:
            head: Its bytes, with the empty line at its end.
            body_bytes: The size of the body that it declares.
            scope: The ASGI scope of the request. The head keeps it.
        """
        self._bytes = head
        self._request_bytes = len(head) + body_bytes
        self._scope = scope
        #: The application's own record of the head; None until the application sets it.
        self.entry: Any = None

    def begins(self, data: bytes) -> bool:
        """Returns whether `data` is a request with this head. Its body may be incomplete."""
        return len(data) <= self._request_bytes and data.startswith(self._bytes)

    def split(self, data: bytes) -> tuple[bytes, int]:
        """Returns the body's bytes in a request with this head, and how many are still to come."""
        return data[len(self._bytes) :], self._request_bytes - len(data)

    def scope(self) -> MutableMapping[str, Any]:
        """Returns a scope for another request with this head."""
        scope: MutableMapping[str, Any] = self._scope.copy()  # type: ignore[attr-defined]
        return scope


def head_of(head: bytes, scope: MutableMapping[str, Any]) -> Head | None:
    r"""Returns the head of a request.

    Args:
        head: Bytes that began between two requests and ended before the first byte of a body, or
            at the end of a request without a body.
        scope: The ASGI scope that the parser made. The head keeps it.

    Returns:
        The head. None if it cannot be kept: other bytes follow it, it does not declare the body's
        size, or its headers concern the connection.

    Example:
        >>> data = b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\n\r\n"
        >>> head = head_of(data, {"headers": [(b"host", b"a"), (b"content-length", b"2")]})
        >>> head.begins(data + b"cd"), head.begins(data + b"cdP"), head.split(data + b"c")
        (True, False, (b'c', 1))
    """
    if head.find(_END) != len(head) - len(_END):
        return None
    headers = dict(scope["headers"])
    if not _UNKEPT.isdisjoint(headers):
        return None
    return Head(head, int(headers.get(b"content-length", 0)), scope)
