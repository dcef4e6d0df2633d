"""A progress bar on the terminal, for work that takes over a second."""

from __future__ import annotations

import sys
import time

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

_QUIET_SECONDS = 1.0


class Progress(Bar):
    """A progress bar on standard error, if it is a terminal. Use it in a `with` statement."""

    def __init__(self, total: int, label: str) -> None:
        super().__init__(
            TextColumn("{task.description}"),
            *(BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()),
            console=Console(file=sys.stderr),
            transient=True,
            disable=not sys.stderr.isatty(),
        )
        self._task = self.add_task(label, total=total)
        self._began = time.monotonic()

    def __enter__(self) -> Progress:
        return self  # `add` starts it

    def add(self, count: int) -> None:
        """Adds `count` to the work done. The bar appears once the work has taken a second."""
        self.advance(self._task, count)
        if not self.live.is_started and time.monotonic() - self._began > _QUIET_SECONDS:
            self.start()
