"""A file that is read again when it changes."""

import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar

from ..errors import StartError

T = TypeVar("T")

_LOG = logging.getLogger("server.access")
_LOOK_SECONDS = 1.0


class WatchedFile(Generic[T]):
    """The parsed content of a file. Used from one event loop."""

    def __init__(
        self,
        path: Path,
        parse: Callable[[bytes], T],
        broken: str,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Reads the file.

        Args:
            path: The file.
            parse: Parses the file's content. Any exception means that the file is broken.
            broken: The beginning of the error for a broken file; the reason follows.
            clock: Returns the time in seconds.

        Raises:
            StartError: The file is broken.
        """
        self._path, self._parse, self._broken, self._clock = path, parse, broken, clock
        self._looked = clock()
        self._content = self._read()
        self.value = self._parsed()

    def look(self, *, now: bool = False) -> bool:
        """Reads the file again if it changed. Checks at most once a second.

        A broken file keeps the old value and logs one sentence.

        Args:
            now: Check without waiting for the second to pass.

        Returns:
            True if there is a new value.
        """
        time_now = self._clock()
        # `abs`, because the system's clock may be set back to long before the last check.
        if not now and abs(time_now - self._looked) < _LOOK_SECONDS:
            return False
        self._looked = time_now
        content = self._read()
        if isinstance(content, bytes) and content == self._content:
            return False
        known, self._content = self._content, content
        try:
            self.value = self._parsed()
        except Exception as error:
            if isinstance(known, bytes) or isinstance(content, bytes):
                _LOG.error("the keys stay as they were: %s", error)
            return False
        return True

    def _read(self) -> bytes | OSError:
        try:
            return self._path.read_bytes()
        except OSError as error:
            return error

    def _parsed(self) -> T:
        try:
            if isinstance(self._content, OSError):
                raise self._content
            return self._parse(self._content)
        except Exception as error:
            reason = " ".join(str(error).split())[:200]
            raise StartError(f"{self._broken}: {reason}") from None
