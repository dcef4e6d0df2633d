"""Waiting for what another thread or process does, however long a slow machine takes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

_SECONDS = 60


async def eventually(condition: Callable[[], Any]) -> None:
    """Waits in an event loop until the condition is true."""
    deadline = time.monotonic() + _SECONDS
    while not condition():
        assert time.monotonic() < deadline, "it never came true"
        await asyncio.sleep(0.01)


def wait_until(condition: Callable[[], Any]) -> None:
    """Waits in a thread of its own until the condition is true."""
    asyncio.run(eventually(condition))
