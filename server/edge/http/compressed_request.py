"""Compressed request bodies, with a limit on the decompressed size."""

import asyncio
import functools
import zlib

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from server.edge.http.responses import error_response

# A body may consist of several gzip members. Millions of empty ones would only waste time.
_MAX_MEMBERS = 64
_WINDOWS = {
    b"gzip": 16 + zlib.MAX_WBITS,
    b"x-gzip": 16 + zlib.MAX_WBITS,
    # HTTP calls zlib's format `deflate`.
    b"deflate": zlib.MAX_WBITS,
}
# A piece of this size may grow a thousand times, which takes milliseconds. Other requests must not
# wait for it.
_OFFLOAD_BYTES = 4096


class _RefusedError(Exception):
    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


class CompressedRequest:
    """Decompresses bodies with `Content-Encoding: gzip` or `deflate`; answers 415 to others."""

    def __init__(self, app: ASGIApp, max_bytes: int) -> None:
        """Wraps an application.

        Args:
            app: The application.
            max_bytes: Largest body in bytes after decompression.
        """
        self._app = app
        self._max_bytes = max_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Runs the application for one request."""
        encoding = _content_encoding(scope) if scope["type"] == "http" else b""
        if encoding in (b"", b"identity"):
            await self._app(scope, receive, send)
            return
        if encoding not in _WINDOWS:
            response = error_response(
                415,
                "Content-Encoding must be gzip, deflate or identity. "
                f"Received: {encoding.decode('latin-1')}",
            )
            await response(scope, receive, send)
            return
        inflate = _Inflater(self._max_bytes, encoding)

        async def receive_inflated() -> Message:
            while True:
                message = await receive()
                if message["type"] != "http.request":
                    return message
                more = message.get("more_body", False)
                piece = message.get("body", b"")
                if len(piece) < _OFFLOAD_BYTES:
                    body = inflate.feed(piece, last=not more)
                else:
                    loop = asyncio.get_running_loop()
                    body = await loop.run_in_executor(
                        None, functools.partial(inflate.feed, piece, last=not more)
                    )
                if body or not more:
                    return {"type": "http.request", "body": body, "more_body": more}

        try:
            await self._app(scope, receive_inflated, send)
        except _RefusedError as refusal:
            response = error_response(refusal.status, refusal.message, {"connection": "close"})
            await response(scope, receive, send)


class _Inflater:
    """Decompresses a stream of one or more members, up to a limit."""

    def __init__(self, max_bytes: int, encoding: bytes) -> None:
        self._name = encoding.decode()
        self._window = _WINDOWS[encoding]
        self._max_bytes = max_bytes
        self._left = max_bytes
        self._stream = zlib.decompressobj(self._window)
        self._members = 1

    def feed(self, data: bytes, *, last: bool) -> bytes:
        pieces = []
        try:
            while data:
                if self._stream.eof:
                    self._members += 1
                    if self._members > _MAX_MEMBERS:
                        raise _RefusedError(
                            400, f"Request body must be at most {_MAX_MEMBERS} {self._name} members"
                        )
                    self._stream = zlib.decompressobj(self._window)
                # One byte over the limit is enough to detect it.
                piece = self._stream.decompress(data, self._left + 1)
                self._left -= len(piece)
                if self._left < 0:
                    raise _RefusedError(
                        413, f"Request body exceeds {self._max_bytes} bytes after decompression"
                    )
                pieces.append(piece)
                data = self._stream.unconsumed_tail or self._stream.unused_data
        except zlib.error:
            raise _RefusedError(
                400, f"Request body must be {self._name}, as Content-Encoding says"
            ) from None
        if last and not self._stream.eof:
            raise _RefusedError(400, f"Request body ends before its {self._name} stream does")
        return b"".join(pieces)


def _content_encoding(scope: Scope) -> bytes:
    for name, value in scope["headers"]:
        if name == b"content-encoding":
            return bytes(value).strip().lower()
    return b""
