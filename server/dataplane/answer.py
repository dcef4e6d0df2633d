"""What handlers have in common: the answer, and where long codec work runs."""

import asyncio
import dataclasses
import time
from collections.abc import Callable, Mapping
from typing import TypeVar

from server.call import current_call

T = TypeVar("T")

JSON = "application/json"

# Below this many bytes (or elements) decoding takes well under a millisecond, less than a
# detour over a thread would be worth; above, other requests must not wait for it.
OFFLOAD_SIZE = 128 * 1024


@dataclasses.dataclass(frozen=True)
class Answer:
    """An answer.

    Attributes:
        body: The JSON text, or bytes of another media type.
        version: The model version that gave it, if one did.
        media_type: What the body is.
        headers: More to tell beside the body.
    """

    body: bytes
    version: int | None = None
    media_type: str = JSON
    headers: Mapping[str, str] = dataclasses.field(default_factory=dict)


async def codec(size: int, call: Callable[[], T], stage: str = "decode") -> T:
    """Runs a decoder or encoder here if its work is small, on a thread if it is not.

    Args:
        size: Bytes or elements of the work.
        call: The work.
        stage: What its time is counted as.
    """
    begun = time.perf_counter()
    try:
        if size < OFFLOAD_SIZE:
            return call()
        return await asyncio.get_running_loop().run_in_executor(None, call)
    finally:
        current_call().spent(stage, time.perf_counter() - begun)
