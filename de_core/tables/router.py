"""Which of a Variable's tables holds a key: splitting batches and putting them together."""

from __future__ import annotations

from collections.abc import Callable

import tensorflow as tf

from de_core.base.checks import received
from de_core.base.ops import library
from de_core.base.plain_python import plain_python

Partitioner = Callable[[tf.Tensor, int], tf.Tensor]


@plain_python
def default_partition_fn(keys: tf.Tensor, shard_num: int) -> tf.Tensor:
    """Returns the shard of each key by a hash that is the same on every build and machine.

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
    """Returns distinct keys and the sums of their rows, for less to travel.

    Rows of float16 and bfloat16 stay as they are: a table adds them up in float32.

    Args:
        keys: [n].
        rows: [n, dim].
    """
    if rows.dtype not in (tf.float32, tf.float64):
        return keys, rows
    unique, places = tf.unique(keys)
    return unique, tf.math.unsorted_segment_sum(rows, places, tf.size(unique))


class Router:
    """Splits batches of keys among `count` tables by a partition function.

    Args:
        partitioner: `f(keys [n], shard_num)` returning one shard in [0, shard_num) a key, or None
            for `default_partition_fn`.
        count: Number of tables.
    """

    #: Whether other processes that train in step with this one hold some of the tables.
    is_spread = False
    #: The number of the first table that this process holds.
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
        """Whether keys are divided by the library's own hash, or not at all."""
        return self.count == 1 or self.partitioner is default_partition_fn

    def table_name(self, name: str, number: int) -> str:
        """Returns the name of table `number` of the Variable `name`."""
        return f"{name}_mht_{number + 1}of{self.count}"

    def about(self, name: str, number: int) -> tuple[str, ...]:
        """Returns what snapshot files say of table `number` of the Variable `name`.

        Returns:
            Keys and values in turn.
        """
        partition = "hash" if self.is_hashed else "custom"
        return ("table", name, "shard", f"{number}/{self.count}", "partition", partition)

    def shards(self, keys: tf.Tensor) -> tf.Tensor:
        """Returns the table of each key.

        Args:
            keys: [n].

        Returns:
            int32 [n], in [0, count).

        Raises:
            ValueError: The user's function returned something else; in a graph, a
                `tf.errors.InvalidArgumentError` when it runs.
        """
        shards = self.partitioner(keys, self.count)
        if self.partitioner is default_partition_fn:
            return shards
        return self._checked(tf.convert_to_tensor(shards), keys)

    def split(self, keys: tf.Tensor, *values: tf.Tensor) -> list[list[tf.Tensor]]:
        """Splits keys, and what belongs to them, by table.

        Args:
            keys: [n].
            *values: Each [n, ...].

        Returns:
            For each table, its part of `keys` and of each of `values`, in the batch's order.
        """
        batch = (keys, *values)
        if self.count == 1:
            return [list(batch)]
        shards = self.shards(keys)
        parts = [tf.dynamic_partition(each, shards, self.count) for each in batch]
        return [list(part) for part in zip(*parts, strict=True)]

    def divided(self, keys: tf.Tensor) -> tuple[list[tf.Tensor], list[tf.Tensor]]:
        """Returns for each table the places of its keys in the batch, int32 [m], and the keys.

        Args:
            keys: [n].
        """
        if self.count == 1:
            return [tf.range(tf.size(keys))], [keys]
        shards = self.shards(keys)
        places = tf.dynamic_partition(tf.range(tf.size(keys)), shards, self.count)
        return places, tf.dynamic_partition(keys, shards, self.count)

    def gather(
        self, keys: tf.Tensor, read: Callable[[int, tf.Tensor], tuple[tf.Tensor, ...]]
    ) -> tuple[tf.Tensor, ...]:
        """Reads from every table and puts the results in the order of `keys`.

        Args:
            keys: [n].
            read: `f(table index, keys [m])` returning tensors [m, ...].

        Returns:
            What `read` returns, each [n, ...].
        """
        if self.count == 1:
            return read(0, keys)
        places, parts = self.divided(keys)
        results = [read(index, part) for index, part in enumerate(parts)]
        return tuple(tf.dynamic_stitch(places, list(each)) for each in zip(*results, strict=True))

    def total(self, count: tf.Tensor) -> tf.Tensor:
        """Returns the sum of a scalar over all processes that hold tables."""
        return count

    def everyones(self, *values: tf.Tensor) -> tuple[tf.Tensor, ...]:
        """Returns what all processes have, each [n, ...], joined."""
        return values

    def require_whole(self, what: str, remedy: str) -> None:
        """Raises NotImplementedError for what would be about a part of the rows only.

        Args:
            what: Is asked for.
            remedy: A sentence.
        """

    def texts(self, text: str) -> list[str]:
        """Returns what each process says; eager mode only."""
        return [text]

    def _checked(self, shards: tf.Tensor, keys: tf.Tensor) -> tf.Tensor:
        if not shards.dtype.is_integer or not shards.shape.is_compatible_with(keys.shape):
            raise ValueError(
                "`partitioner` must return one integer a key. "
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
