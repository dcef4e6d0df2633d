"""One version of a model in memory, with a count of its users."""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import orjson

from ...request import current_request
from ...tensors import STATS_SIGNATURE, Array, Tensors
from .batching import Batcher, Run, batchable
from .saved_model import SavedModel
from .worker_pool import WorkerPool


class LeasedVersion:
    """One loaded version and its number of users; a `Servable`."""

    def __init__(
        self,
        version: int,
        model: SavedModel,
        pool: WorkerPool,
        batcher: Callable[[Run], Batcher] | None = None,
    ) -> None:
        """Creates the version without users. Without `batcher` each request runs alone."""
        self.version = version
        self.signatures, self.described = model.signatures, model.described
        self._model = model
        self._pool = pool
        self._batcher = batcher(self._run_now) if batcher else None
        self._batchable = {name for name, each in self.signatures.items() if batchable(each)}
        self._holders = 0
        self._free = asyncio.Event()
        self._free.set()

    def run(self, signature: str, inputs: Tensors) -> Coroutine[Any, Any, dict[str, Array]]:
        """See `Servable.run`."""
        if self._batcher is None or signature not in self._batchable:
            return self._run_now(signature, inputs)
        return self._batcher.run(self.signatures[signature], inputs)

    async def _run_now(self, signature: str, inputs: Tensors) -> dict[str, Array]:
        request, begun = current_request(), time.perf_counter()

        def run() -> dict[str, Array]:
            started = time.perf_counter()
            request.stages["queue"] += started - begun
            try:
                return self._model.run(signature, inputs, request.remaining())
            finally:
                request.stages["run"] += time.perf_counter() - started

        self.hold()
        return await self._pool.run(run, self.release)

    def damage(self) -> str:
        """Returns the damage that was found in the tables' files so far. Blocks."""
        if STATS_SIGNATURE not in self.signatures:
            return ""
        with contextlib.suppress(Exception):  # such a model does not describe its tables
            stats = orjson.loads(self._model.run(STATS_SIGNATURE, {})["stats"].item())
            return next((str(table["damage"]) for table in stats if "damage" in table), "")
        return ""

    def hold(self) -> None:
        """Adds one user: a request, or a run that outlives its request."""
        self._holders += 1
        self._free.clear()

    def release(self) -> None:
        """Removes one user."""
        self._holders -= 1
        if not self._holders:
            self._free.set()

    async def close(self, run: Callable[[Callable[[], None]], Awaitable[None]]) -> None:
        """Waits until the version has no users, then releases the model through `run`."""
        await self._free.wait()
        await run(self._model.close)
