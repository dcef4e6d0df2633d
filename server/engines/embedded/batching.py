"""Micro-batches: requests that arrive together run together.

A batch belongs to one signature of one version and one set of inner shapes. It runs when its rows
reach the limit, or its first row has waited long enough. A client that disconnects removes its rows
from a waiting batch and does not affect the others.
"""

import asyncio
import dataclasses
import re
import time
from collections.abc import Awaitable, Callable

import numpy as np

from ...errors import Code, ServingError, internal, too_many
from ...request import Request, begin_request, current_request
from ...tensors import Array, SignatureSpec, Tensors

Run = Callable[[str, Tensors], Awaitable[dict[str, Array]]]
# Names of vectors that say which values belong together: rows of ragged tensors, bags, segments.
_RAGGED = re.compile(r"(.*_)?row_(lengths|splits|starts|limits)(_\d+)?|offsets|segment_ids")
_Key = tuple[str, tuple[tuple[str, tuple[int, ...]], ...]]
# The server, not one of the requests, is the reason for these errors.
_OF_THE_SERVER = (
    Code.RESOURCE_EXHAUSTED,
    Code.DEADLINE_EXCEEDED,
    Code.UNAVAILABLE,
    Code.CANCELLED,
)


@dataclasses.dataclass
class _Part:
    """One request's share of a batch."""

    inputs: Tensors
    rows: int
    done: "asyncio.Future[dict[str, Array]]"
    deadline: float | None


@dataclasses.dataclass
class _Batch:
    """Parts that wait for one batch."""

    timer: asyncio.TimerHandle
    parts: list[_Part] = dataclasses.field(default_factory=list)
    rows: int = 0


def batchable(signature: SignatureSpec) -> bool:
    """Returns whether each row of the outputs belongs to the same row of the inputs.

    So the first dimension of every input and output can have any size, the other dimensions of the
    outputs are known, and nothing is ragged, by its name. No description tells more: whoever asks
    for batches knows that the model computes each row by itself.
    """
    specs = [*signature.inputs.values(), *signature.outputs.values()]
    return (
        bool(signature.inputs)
        and all(spec.shape and spec.shape[0] is None for spec in specs)
        and all(None not in (spec.shape or ())[1:] for spec in signature.outputs.values())
        and not any(len(spec.shape or ()) == 1 and _RAGGED.fullmatch(spec.name) for spec in specs)
    )


class Batcher:
    """Batches the runs of one version of a model. Used from one event loop."""

    def __init__(
        self,
        run: Run,
        most_rows: int,
        delay_seconds: float,
        observe_rows: Callable[[float], object] = lambda _: None,
        max_waiting_rows: int = 65_536,
    ) -> None:
        """Creates the batcher.

        Args:
            run: Runs a signature on a whole batch.
            most_rows: Rows of the largest batch.
            delay_seconds: Seconds that the first row of a batch waits for more rows.
            observe_rows: Called with the number of rows of each batch that is sent.
            max_waiting_rows: Largest number of rows in all batches that wait or run.
        """
        self._run, self._most_rows, self._delay_seconds = run, most_rows, delay_seconds
        self._observe_rows, self._max_waiting_rows = observe_rows, max_waiting_rows
        self._batches: dict[_Key, _Batch] = {}
        self._running: set[asyncio.Task[None]] = set()
        self._waiting_rows = 0

    async def run(self, signature: SignatureSpec, inputs: Tensors) -> dict[str, Array]:
        """Runs a signature on some rows, together with rows that arrive meanwhile.

        The signature's `batchable` must be true.

        Raises:
            ServingError: RESOURCE_EXHAUSTED if too many rows wait, or the error of the run.
        """
        sizes = {len(array) if array.ndim else 0 for array in inputs.values()}
        rows = sizes.pop() if len(sizes) == 1 else 0
        if not 0 < rows < self._most_rows:
            return await self._run(signature.name, inputs)
        if self._waiting_rows + rows > self._max_waiting_rows:
            raise too_many("rows wait for the model", self._waiting_rows)
        loop = asyncio.get_running_loop()
        shapes = tuple((name, array.shape[1:]) for name, array in sorted(inputs.items()))
        key = (signature.name, shapes)
        batch = self._batches.get(key)
        if batch is not None and batch.rows + rows > self._most_rows:
            self._send(key)
            batch = None
        if batch is None:
            batch = _Batch(loop.call_later(self._delay_seconds, self._send, key))
            self._batches[key] = batch
        request, begun = current_request(), time.perf_counter()
        part = _Part(inputs, rows, loop.create_future(), request.deadline)
        batch.parts.append(part)
        batch.rows += rows
        if batch.rows >= self._most_rows:
            self._send(key)
        self._waiting_rows += rows
        try:
            return await part.done
        finally:
            self._waiting_rows -= rows
            request.stages["run"] += time.perf_counter() - begun

    def _send(self, key: _Key) -> None:
        batch = self._batches.pop(key)
        batch.timer.cancel()
        task = asyncio.get_running_loop().create_task(self._answer(key[0], batch))
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def _answer(self, signature: str, batch: _Batch) -> None:
        # This task inherited the context of one request, which says whose deadline applies. Replace
        # it: the batch runs until the last deadline of its requests.
        parts = [part for part in batch.parts if not part.done.done()]
        deadlines = [part.deadline for part in parts if part.deadline is not None]
        all_have_one = len(deadlines) == len(parts)
        begin_request(Request(deadline=max(deadlines, default=None) if all_have_one else None))
        if not parts:
            return
        rows = sum(part.rows for part in parts)
        self._observe_rows(rows)
        try:
            inputs = parts[0].inputs
            if len(parts) > 1:
                inputs = {
                    name: np.concatenate([part.inputs[name] for part in parts]) for name in inputs
                }
            outputs = await self._run(signature, inputs)
            if len(parts) == 1:
                if not parts[0].done.done():
                    parts[0].done.set_result(outputs)
                return
            for name, array in outputs.items():
                if not array.ndim or len(array) != rows:
                    raise internal(
                        f"signature {signature} cannot be batched: output {name} has shape "
                        f"{array.shape} for {rows} rows"
                    )
        except Exception as error:
            await self._answer_alone(signature, parts, error)
            return
        start = 0
        for part in parts:
            end = start + part.rows
            if not part.done.done():
                part.done.set_result({name: array[start:end] for name, array in outputs.items()})
            start = end

    async def _answer_alone(self, signature: str, parts: list[_Part], error: Exception) -> None:
        """Runs the parts one by one, so that an error in one part does not fail the others."""
        wrong = isinstance(error, ServingError) and error.code not in _OF_THE_SERVER
        for part in parts:
            answer: dict[str, Array] | Exception = error
            if wrong and len(parts) > 1 and not part.done.done():
                try:
                    answer = await self._run(signature, part.inputs)
                except Exception as own:
                    answer = own
            if part.done.done():
                continue
            if isinstance(answer, Exception):
                part.done.set_exception(answer)
            else:
                part.done.set_result(answer)
