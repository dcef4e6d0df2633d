"""Compressed request bodies, with a limit on the decompressed size."""

import asyncio
import zlib

from ..errors import RefusedError

# A body may consist of several gzip members, one compressed stream after the other. An attacker
# could send millions of empty members to waste the gateway's time.
_MAX_MEMBERS = 64
_WINDOWS = {
    b"gzip": 16 + zlib.MAX_WBITS,
    b"x-gzip": 16 + zlib.MAX_WBITS,
    # HTTP's name `deflate` means the zlib format, not raw deflate data.
    b"deflate": zlib.MAX_WBITS,
}
# A piece of this size may decompress to a thousand times its size, which takes milliseconds. Such a
# piece goes to a thread, so that other requests do not wait for it.
_OFFLOAD_BYTES = 4096


def encoding_of(header: bytes) -> bytes:
    """Returns a body's compression from its header `Content-Encoding`; empty for none.

    Raises:
        RefusedError: 415 for another compression than gzip or deflate.
    """
    encoding = header.strip().lower()
    if encoding in (b"", b"identity"):
        return b""
    if encoding not in _WINDOWS:
        raise RefusedError(
            415,
            "Content-Encoding must be gzip, deflate or identity. "
            f"Received: {encoding.decode('latin-1')}",
            close=False,
        )
    return encoding


class Inflater:
    """Decompresses a stream of one or more members, up to a limit."""

    def __init__(self, max_bytes: int, encoding: bytes) -> None:
        """Creates the stream; `encoding` comes from `encoding_of`."""
        self._name = encoding.decode()
        self._window = _WINDOWS[encoding]
        self._max_bytes = max_bytes
        self._left = max_bytes
        self._stream = zlib.decompressobj(self._window)
        self._members = 1

    async def feed(self, data: bytes, *, last: bool) -> bytes:
        """Decompresses a piece.

        `last` is True if the stream ends with this piece.

        Raises:
            RefusedError: 400 for bytes of another format, 413 above the limit.
        """
        if len(data) < _OFFLOAD_BYTES:
            return self._inflate(data, last=last)
        return await asyncio.to_thread(self._inflate, data, last=last)

    def _inflate(self, data: bytes, *, last: bool) -> bytes:
        pieces = []
        try:
            while data:
                if self._stream.eof:
                    self._members += 1
                    if self._members > _MAX_MEMBERS:
                        raise RefusedError(
                            400, f"Request body must be at most {_MAX_MEMBERS} {self._name} members"
                        )
                    self._stream = zlib.decompressobj(self._window)
                # One byte over the limit is enough to detect it.
                piece = self._stream.decompress(data, self._left + 1)
                self._left -= len(piece)
                if self._left < 0:
                    raise RefusedError(
                        413, f"Request body exceeds {self._max_bytes} bytes after decompression"
                    )
                pieces.append(piece)
                data = self._stream.unconsumed_tail or self._stream.unused_data
        except zlib.error:
            raise RefusedError(
                400, f"Request body must be {self._name}, as Content-Encoding says"
            ) from None
        if last and not self._stream.eof:
            raise RefusedError(400, f"Request body ends before its {self._name} stream does")
        return b"".join(pieces)
