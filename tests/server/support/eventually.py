"""Waits for the effects of another thread or process, however slow the machine is."""

import asyncio
import time
from collections.abc import Callable
from typing import Any

#: The longest wait. It only ends a test that would hang: a busy machine may take minutes.
PATIENCE_S = 600


async def eventually(condition: Callable[[], Any]) -> None:
    """Waits in an event loop until the condition is true."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, "it never came true"
        await asyncio.sleep(0.01)


def wait_until(condition: Callable[[], Any]) -> None:
    """Waits in the current thread until the condition is true."""
    asyncio.run(eventually(condition))
