"""A progress bar on the terminal."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import TextIO

_WIDTH = 30
_SECONDS_BETWEEN = 0.1


class Progress:
    """A progress bar, shown only if the stream is a terminal. Use it in a `with` statement.

    Args:
        total: The total of all counts passed to `add`.
        label: The text before the bar.
        stream: The output stream; None for standard error.
    """

    def __init__(self, total: int, label: str, stream: TextIO | None = None) -> None:
        self._stream = sys.stderr if stream is None else stream
        self._shown = self._stream.isatty()
        self._total = max(total, 1)
        self._label = label
        self._done = 0
        self._began = self._last = time.monotonic()

    def add(self, count: int) -> None:
        """Adds `count` to the work done, and redraws the bar."""
        self._done += count
        now = time.monotonic()
        if self._shown and now - self._last >= _SECONDS_BETWEEN:
            self._last = now
            self._draw(now - self._began)

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._shown:
            self._stream.write("\r\x1b[K")
            self._stream.flush()

    def _draw(self, seconds: float) -> None:
        part = min(self._done / self._total, 1.0)
        bar = "#" * int(part * _WIDTH)
        left = seconds / part - seconds if part > 0 else 0.0
        self._stream.write(
            f"\r\x1b[K{self._label} [{bar:<{_WIDTH}}] {part:4.0%} "
            f"{self._done:,} in {seconds:.0f} s, {left:.0f} s left"
        )
        self._stream.flush()
