"""Assigns each key to one of a table's shards: splits batches and joins the results."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import tensorflow as tf

from de_core.base.checks import received
from de_core.base.no_autograph import no_autograph
from de_core.base.ops import library

Partitioner = Callable[[tf.Tensor, int], tf.Tensor]
_T = TypeVar("_T")


@no_autograph
def default_partition_fn(keys: tf.Tensor, shard_num: int) -> tf.Tensor:
    """Returns the shard of each key. The hash is the same in every build and on every machine.

    Args:
        keys: int64, int32 or string, any shape.
        shard_num: Number of shards, at least 1.

    Returns:
        int32 of the shape of `keys`, in [0, shard_num).

    Example:
    >>> default_partition_fn(tf.constant([1, 2, 3], tf.int64), 1).numpy().tolist()
    [0, 0, 0]
    """
    return library.de_shard_of(keys, num_shards=shard_num)


def summed_rows(keys: tf.Tensor, rows: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Sums the rows of equal keys.

    Returns the distinct keys and the sums. The rows are float32 or float64 [n, dim].
    """
    if tf.is_symbolic_tensor(keys) and keys.op.type == "Unique" and keys.value_index == 0:
        return keys, rows  # distinct keys, as in a joined lookup
    unique, places = tf.unique(keys)
    return unique, tf.math.unsorted_segment_sum(rows, places, tf.size(unique))


class Router:
    """Splits batches of keys among `count` shards by a partition function.

    Args:
        partitioner: `f(keys [n], shard_num)` that returns the shard of each key, in [0, shard_num).
            None for `default_partition_fn`.
        count: Number of shards.
    """

    #: True if other processes that train synchronously with this process hold some of the shards.
    is_spread = False
    #: Number of the first shard in this process.
    first = 0

    def __init__(self, partitioner: Partitioner | None, count: int) -> None:
        if partitioner is not None and not callable(partitioner):
            raise TypeError(
                "`partitioner` must be a function (keys, shard_num) -> shard of each key. "
                + received(partitioner=partitioner)
            )
        self.partitioner = default_partition_fn if partitioner is None else partitioner
        self.count = count

    @property
    def is_hashed(self) -> bool:
        """True if the library's own hash assigns the keys, or if there is one shard."""
        return self.count == 1 or self.partitioner is default_partition_fn

    def table_name(self, name: str, number: int) -> str:
        """Returns the name of shard `number` of the Variable `name`."""
        return f"{name}_mht_{number + 1}of{self.count}"

    def metadata(self, name: str, number: int) -> tuple[str, ...]:
        """Returns the metadata of shard `number` of the Variable `name` for its snapshot files.

        Returns:
            Alternating keys and values.
        """
        partition = "hash" if self.is_hashed else "custom"
        return ("table", name, "shard", f"{number}/{self.count}", "partition", partition)

    def shards(self, keys: tf.Tensor) -> tf.Tensor:
        """Returns the shard of each key [n], int32 [n] in [0, count).

        Raises:
            ValueError: The user's function returned something else. In a graph it is a
                `tf.errors.InvalidArgumentError` at run time.
        """
        shards = self.partitioner(keys, self.count)
        if self.partitioner is default_partition_fn:
            return shards
        return self._checked(tf.convert_to_tensor(shards), keys)

    def split(self, keys: tf.Tensor, *values: tf.Tensor) -> list[list[tf.Tensor]]:
        """Splits keys [n] and their values, each [n, ...], by shard.

        Returns for each shard its part of the keys and of each of the values, in the order of the
        batch.
        """
        batch = (keys, *values)
        if self.count == 1:
            return [list(batch)]
        shards = self.shards(keys)
        parts = [tf.dynamic_partition(each, shards, self.count) for each in batch]
        return [list(part) for part in zip(*parts, strict=True)]

    def divided(self, keys: tf.Tensor) -> tuple[list[tf.Tensor], list[tf.Tensor]]:
        """Splits keys [n] by shard.

        Returns for each shard the positions of its keys in the batch, int32 [m], and its keys [m].
        """
        parts, places = zip(*self.split(keys, tf.range(tf.size(keys))), strict=True)
        return list(places), list(parts)

    def gather(
        self, keys: tf.Tensor, read: Callable[[int, tf.Tensor], tuple[tf.Tensor, ...]]
    ) -> tuple[tf.Tensor, ...]:
        """Reads from every shard and returns the results [n, ...] in the order of `keys` [n].

        `read` is a function of a shard's number and keys [m] that returns tensors [m, ...].
        """
        if self.count == 1:
            return read(0, keys)
        places, parts = self.divided(keys)
        results = [read(index, part) for index, part in enumerate(parts)]
        return tuple(tf.dynamic_stitch(places, list(each)) for each in zip(*results, strict=True))

    def total(self, count: tf.Tensor) -> tf.Tensor:
        """Returns the sum of a scalar over all processes that hold shards."""
        return count

    def concatenated_over_processes(self, *values: tf.Tensor) -> tuple[tf.Tensor, ...]:
        """Returns the values of all processes, concatenated along the first dimension."""
        return values

    def require_whole(self, what: str, remedy: str) -> None:
        """Raises NotImplementedError if this process holds only some of the shards.

        `what` needs all of them, and `remedy` is a sentence that says what to do instead.
        """

    def in_each_worker(self, save: Callable[[], _T]) -> list[_T]:
        """Runs a part of a save on each worker. Returns the results in the workers' order.

        Eager mode only. The results are strings and numbers, or lists and dicts of them.

        Raises:
            tf.errors.AbortedError: Another worker failed. A worker raises its own error unchanged.
        """
        return [save()]

    def _checked(self, shards: tf.Tensor, keys: tf.Tensor) -> tf.Tensor:
        if not shards.dtype.is_integer or not shards.shape.is_compatible_with(keys.shape):
            raise ValueError(
                "`partitioner` must return one integer per key. "
                f"Received: dtype={shards.dtype.name}, shape={shards.shape} for {keys.shape} keys."
            )
        message = (
            f"`partitioner` must return shards in [0, {self.count}), one for each device. "
            "Received: shard="
        )
        outside = tf.logical_or(shards < 0, shards >= self.count)
        if tf.executing_eagerly():
            if bool(tf.reduce_any(outside)):
                raise ValueError(f"{message}{int(tf.boolean_mask(shards, outside)[0])}.")
            return tf.cast(shards, tf.int32)
        check = tf.debugging.Assert(
            tf.logical_not(tf.reduce_any(outside)), [message, tf.boolean_mask(shards, outside)]
        )
        with tf.control_dependencies([check]):
            return tf.identity(tf.cast(shards, tf.int32))
