"""The tables that the benchmarks compare. All have the same random keys and random float rows."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import tensorflow as tf

import de_core as de

BATCH = 65536


def random_keys(count: int) -> np.ndarray:
    """Distinct nonnegative int64 keys: DenseHashTable needs two unused keys."""
    keys = np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    keys ^= keys >> np.uint64(
        32
    )  # keeps the keys distinct, as the multiplication by an odd number does
    assert len(np.unique(keys >> np.uint64(1))) == count
    return (keys >> np.uint64(1)).astype(np.int64)


class DeCore:
    """This project's Variable."""

    name = "de_core"

    def __init__(self, dim: int) -> None:
        self.variable = de.Variable(dim=dim, name=f"bench_{dim}", initializer=0.0)

    def lookup(self, keys: tf.Tensor) -> tf.Tensor:
        return self.variable.lookup(keys)

    def insert(self, keys: tf.Tensor, values: tf.Tensor) -> tf.Operation:
        return self.variable.upsert(keys, values)


class MutableHashTable:
    """TensorFlow's chained table of vectors."""

    name = "MutableHashTable"

    def __init__(self, dim: int) -> None:
        self.table = tf.lookup.experimental.MutableHashTable(tf.int64, tf.float32, tf.zeros([dim]))

    def lookup(self, keys: tf.Tensor) -> tf.Tensor:
        return self.table.lookup(keys)

    def insert(self, keys: tf.Tensor, values: tf.Tensor) -> tf.Operation:
        return self.table.insert(keys, values)


class DenseHashTable(MutableHashTable):
    """TensorFlow's open-addressing table of one tensor."""

    name = "DenseHashTable"

    def __init__(self, dim: int) -> None:
        self.table = tf.lookup.experimental.DenseHashTable(
            tf.int64, tf.float32, tf.zeros([dim]), empty_key=-1, deleted_key=-2
        )


class Gather:
    """`tf.gather` on a dense variable, whose ids are row numbers: no hashing at all."""

    name = "tf.gather"

    def __init__(self, values: np.ndarray) -> None:
        self.variable = tf.Variable(values)

    def lookup(self, rows: tf.Tensor) -> tf.Tensor:
        return tf.gather(self.variable, rows)


HASH_TABLES = [DeCore, MutableHashTable, DenseHashTable]


def filled(table, keys: np.ndarray, dim: int):
    """Inserts rows that reveal a wrong lookup, and returns the table."""
    for at in range(0, len(keys), BATCH):
        part = keys[at : at + BATCH]
        table.insert(tf.constant(part), tf.constant(rows_of(part, dim)))
    return table


def rows_of(keys: np.ndarray, dim: int) -> np.ndarray:
    return (keys[:, None] % 1000 + np.arange(dim)).astype(np.float32)


def repeated_lookup(table, batch: int, times: int) -> Callable[[tf.Tensor], tuple]:
    """Compiles `times` consecutive lookups of `batch` ids each into one function.

    Small batches use several lookups, so that the cost of calling a function does not dominate.
    """

    @tf.function(input_signature=[tf.TensorSpec([times, batch], tf.int64)])
    def run(ids: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        used = tf.zeros([])
        for i in range(times):
            with tf.control_dependencies([used]):
                rows = table.lookup(ids[i])
            used += rows[0, 0]  # or TensorFlow would drop the lookup
        return rows, used

    return run
