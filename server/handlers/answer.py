"""What handlers have in common: the answer, and where long codec work runs."""

import asyncio
import dataclasses
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

# Below this many bytes (or elements) decoding takes well under a millisecond, less than a
# detour over a thread would be worth; above, other requests must not wait for it.
OFFLOAD_SIZE = 128 * 1024


@dataclasses.dataclass(frozen=True)
class Answer:
    """A JSON answer.

    Attributes:
        body: The JSON text.
        version: The model version that gave it, if one did.
    """

    body: bytes
    version: int | None = None


async def codec(size: int, call: Callable[[], T]) -> T:
    """Runs a decoder or encoder here if its work is small, on a thread if it is not."""
    if size < OFFLOAD_SIZE:
        return call()
    return await asyncio.get_running_loop().run_in_executor(None, call)
