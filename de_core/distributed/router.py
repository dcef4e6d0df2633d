"""Assigns keys to workers. Sends keys to their workers and receives rows."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TypeVar

import tensorflow as tf

from de_core.base.ops import library
from de_core.distributed.workers import KeyDelivery, Workers
from de_core.tables.router import Partitioner, Router

_T = TypeVar("_T")


class WorkerRouter(Router):
    """Divides keys among workers with one shard each. All workers must call it together."""

    is_spread = True

    def __init__(self, partitioner: Partitioner | None, workers: Workers) -> None:
        super().__init__(partitioner, workers.count)
        self.workers = workers
        self.first = workers.here

    def split(self, keys: tf.Tensor, *values: tf.Tensor) -> list[list[tf.Tensor]]:
        """Returns the parts that all workers send here, in the order of the workers."""
        delivery = KeyDelivery(self.workers, [keys], [self.shards(keys)])
        return [[*delivery.arrived, *(delivery.send([each])[0] for each in values)]]

    def gather(
        self, keys: tf.Tensor, read: Callable[[int, tf.Tensor], tuple[tf.Tensor, ...]]
    ) -> tuple[tf.Tensor, ...]:
        """Reads from the shards of all workers. Returns rows in the order of `keys`."""
        delivery = KeyDelivery(self.workers, [keys], [self.shards(keys)])
        results = read(0, delivery.arrived[0])
        # Send the flags together with the values, to need only one collective.
        first = results[0]
        flags = [tf.cast(each, first.dtype)[:, tf.newaxis] for each in results[1:]]
        if first.dtype == tf.bool:
            [answer] = delivery.answer([tf.cast(first, tf.int32)])
            return (tf.cast(answer, tf.bool),)
        [answer] = delivery.answer([tf.concat([first, *flags], 1) if flags else first])
        if not flags:
            return (answer,)
        values, *found = tf.split(answer, [first.shape[1], *[1] * len(flags)], 1)
        return (values, *(tf.cast(each[:, 0], tf.bool) for each in found))

    def total(self, count: tf.Tensor) -> tf.Tensor:
        """Returns the sum of a count over all workers."""
        return tf.reduce_sum(self.workers.swap(tf.fill([self.count, 1], count)))

    def concatenated_over_processes(self, *values: tf.Tensor) -> tuple[tf.Tensor, ...]:
        """Concatenates the values of all workers, each [n, ...]."""
        return tuple(self._collected(each) for each in values)

    def _collected(self, values: tf.Tensor) -> tf.Tensor:
        if values.dtype != tf.string:
            return self.workers.collected(values)
        words_and_lengths = library.de_strings_to_words(values)
        return library.de_words_to_strings(*map(self.workers.collected, words_and_lengths))

    def require_whole(self, what: str, remedy: str) -> None:
        """Raises NotImplementedError, because the rows are divided among workers."""
        raise NotImplementedError(
            f"{what} must be of tables whose rows are all in one process. "
            f"Received: tables divided among workers={self.count}. {remedy}"
        )

    def in_each_worker(self, save: Callable[[], _T]) -> list[_T]:
        """Runs a part of a save on each worker. Returns the results in the workers' order."""
        failure: Exception | None = None
        try:
            mine: dict[str, _T | str] = {"result": save()}
        except Exception as error:
            failure, mine = error, {"error": f"{type(error).__name__}: {error}"}
        everyones = [
            json.loads(each) for each in self._collected(tf.constant([json.dumps(mine)])).numpy()
        ]
        if failure is not None:
            raise failure
        for number, each in enumerate(everyones):
            if "error" in each:
                raise tf.errors.AbortedError(
                    None,
                    None,
                    "All workers must write their parts of a checkpoint. Nothing was replaced. "
                    f"Received: worker {number} failed with {each['error']}",
                )
        return [each["result"] for each in everyones]
