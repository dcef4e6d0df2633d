"""One version of a model in memory, with a count of its users."""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol, TypeVar

import orjson

from ...request import current_request
from ...tensors import Array, SignatureSpec, Tensors
from ..base import Classifications
from .batching import Batcher, BatchOptions, batchable
from .brief_runs import BriefRuns
from .example_outputs import classifications, regressions
from .worker_pool import WorkerPool

# The signature that describes a model's tables.
_STATS = "de_stats"

T = TypeVar("T")


class LoadedModel(Protocol):
    """A model in memory. Its methods block; `engines.base.Servable` describes them."""

    @property
    def signatures(self) -> Mapping[str, SignatureSpec]:
        """The signatures that can be run, by name."""
        ...

    @property
    def described(self) -> Sequence[SignatureSpec]:
        """All signatures that the model declares."""
        ...

    @property
    def steady(self) -> frozenset[str]:
        """The signatures whose time depends only on the sizes of their inputs."""
        ...

    def run(
        self, signature: str, inputs: Tensors, seconds: float | None = None
    ) -> dict[str, Array]:
        """Runs a signature. With `seconds`, cancels the run after one to two times this time."""
        ...

    def close(self) -> None:
        """Releases the model. No run may be active."""
        ...


LoadModel = Callable[[Path], LoadedModel]


class LeasedVersion:
    """One loaded version and its number of users; a `Servable`."""

    def __init__(
        self,
        version: int,
        model: LoadedModel,
        pool: WorkerPool,
        batching: BatchOptions,
        brief_seconds: float,
    ) -> None:
        """Creates the version without users. `brief_seconds` as for `BriefRuns`."""
        self.version = version
        self._model = model
        self._pool = pool
        self._batcher = Batcher(self._run_now, batching) if batching.rows else None
        self._brief = BriefRuns(brief_seconds, model.steady)
        self._holders = 0
        self._free = asyncio.Event()
        self._free.set()

    @property
    def signatures(self) -> Mapping[str, SignatureSpec]:
        """See `Servable.signatures`."""
        return self._model.signatures

    @property
    def described(self) -> Sequence[SignatureSpec]:
        """See `Servable.described`."""
        return self._model.described

    async def run(self, signature: str, inputs: Tensors) -> dict[str, Array]:
        """See `Servable.run`."""
        spec = self._model.signatures[signature]
        if self._batcher is None or not batchable(spec):
            return await self._run_now(signature, inputs)
        begun = time.perf_counter()
        try:
            return await self._batcher.run(spec, inputs)
        finally:
            current_request().spent("run", time.perf_counter() - begun)

    async def _run_now(self, signature: str, inputs: Tensors) -> dict[str, Array]:
        spec = self._model.signatures[signature]
        if self._brief.expects(spec, inputs):
            return self._run_here(spec, inputs)

        request = current_request()
        # If the run may be brief, measure its CPU time. That is only possible on the pool's own
        # thread, where TensorFlow runs the graph if there is no deadline (and cannot cancel it).
        untimed = self._brief.may_be_brief(spec, inputs)

        def run() -> dict[str, Array]:
            seconds = request.remaining()
            clock = time.thread_time if untimed else time.perf_counter
            begun = clock()
            try:
                return self._model.run(signature, inputs, None if untimed else seconds)
            finally:
                self._brief.ran_on_thread(spec, inputs, clock() - begun)

        return await self._timed(run)

    def _run_here(self, spec: SignatureSpec, inputs: Tensors) -> dict[str, Array]:
        begun = time.perf_counter()
        try:
            return self._model.run(spec.name, inputs)
        finally:
            seconds = time.perf_counter() - begun
            self._brief.ran_here(spec, inputs, seconds)
            current_request().spent("run", seconds)

    async def _timed(self, work: Callable[[], T]) -> T:
        """Runs a call of the model on the pool; measures its time in the queue and its run time."""
        call = current_request()
        asked = time.perf_counter()

        def timed() -> T:
            begun = time.perf_counter()
            call.spent("queue", begun - asked)
            try:
                return work()
            finally:
                call.spent("run", time.perf_counter() - begun)

        self.hold()
        return await self._pool.run(timed, self.release)

    async def classify(self, signature: str, examples: Array) -> Classifications:
        """See `Servable.classify`."""
        return classifications(await self._run_examples(signature, examples), len(examples))

    async def regress(self, signature: str, examples: Array) -> Array:
        """See `Servable.regress`."""
        return regressions(await self._run_examples(signature, examples), len(examples))

    async def _run_examples(self, signature: str, examples: Array) -> Tensors:
        request = current_request()
        (name,) = self._model.signatures[signature].inputs
        return await self._timed(
            lambda: self._model.run(signature, {name: examples}, request.remaining())
        )

    def damage(self) -> str:
        """Returns the damage that was found in the tables' files so far. Blocks."""
        if _STATS not in self._model.signatures:
            return ""
        with contextlib.suppress(Exception):  # such a model does not describe its tables
            stats = orjson.loads(self._model.run(_STATS, {})["stats"].item())
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
