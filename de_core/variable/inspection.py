"""Tells what a table holds and how much memory it takes, and tidies the memory."""

from __future__ import annotations

import itertools
import numbers
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from de_core.base.checks import received
from de_core.base.plain_python import plain_python
from de_core.tables import keys_and_values
from de_core.tables.sharded import ShardedTable

_PARTS = ("index", "rows", "slots", "strings", "policy", "free")
_COUNTS = ("rows", "hits", "misses", "evicted", "refused")


class Inspection:
    """Tells what is in a table.

    Args:
        table: The table.
    """

    def __init__(self, table: ShardedTable) -> None:
        self._table = table

    @plain_python
    def size(self, index: int | None = None, name: str | None = None) -> tf.Tensor:
        """Returns the number of rows, an int64 scalar.

        Args:
            index: Of one table; None for all.
            name: Of the operation.

        Raises:
            ValueError: There is no table `index`.
        """
        count = len(self._table.tables)
        if index is not None and not 0 <= index < count:
            raise ValueError(
                f"`index` must be None or that of one of the {count} tables. "
                + received(index=index)
            )
        with tf.name_scope(name or "size"):
            return self._table.size(index)

    @plain_python
    def contains(self, keys: Any, name: str | None = None) -> tf.Tensor:
        """Returns whether each key has a row, without reading it.

        Args:
            keys: Of the key dtype, any shape.
            name: Of the operation.

        Returns:
            bool, keys.shape.

        Raises:
            TypeError: `keys` are not of the key dtype.

        Example:
        >>> import de_core as de
        >>> users = de.Variable(dim=2)
        >>> users.upsert([7], [[1.0, 2.0]])
        >>> users.contains([7, 8]).numpy().tolist()
        [True, False]
        """
        with tf.name_scope(name or "contains"):
            keys = keys_and_values.checked_keys(keys, self._table)
            return self._table.contains(keys)

    @plain_python
    def export(self, name: str | None = None) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns all keys [n] and their values [n, dim], in no particular order."""
        with tf.name_scope(name or "export"):
            return self._table.export()

    @plain_python
    def export_batches(self) -> Iterator[tuple[tf.Tensor, tf.Tensor]]:
        """Walks all rows, a few thousand a time, for tables too large for a copy; eager mode only.

        Other threads may write meanwhile: a row that is there throughout comes exactly once, one
        inserted or removed on the way may come or not.

        Returns:
            An iterator of keys [n] and values [n, dim], n > 0, in no particular order.

        Raises:
            RuntimeError: Called in a graph, such as that of a `tf.function`.

        Example:
        >>> import de_core as de
        >>> users = de.Variable(dim=1)
        >>> users.upsert(range(10_000), tf.ones([10_000, 1]))
        >>> sum(len(keys) for keys, values in users.export_batches())
        10000
        """
        _require_eager("export_batches", "`export` returns all rows in graphs too.")
        self._table.router.require_whole("`export_batches`", "Use `export`, or a checkpoint.")
        return itertools.chain.from_iterable(table.export_batches() for table in self._table.tables)

    @plain_python
    def reserve(self, rows: int, name: str | None = None) -> tf.Operation | None:
        """Makes room for `rows` rows in all, divided among the tables, so that none need grow.

        Args:
            rows: Those that are there included; they are kept however small it is.
            name: Of the operation.

        Returns:
            The operation, or None in eager mode.

        Raises:
            TypeError: `rows` is no whole number.
            ValueError: `rows` is negative.
            tf.errors.InvalidArgumentError: `rows` are more than a table can number, some 6.8e10.
            tf.errors.ResourceExhaustedError: There is no memory for them. The table is as before.

        Example:
        >>> import de_core as de
        >>> users = de.Variable(dim=2)
        >>> before = users.memory_usage()["index"]
        >>> users.reserve(100_000)
        >>> users.memory_usage()["index"] > before
        True
        """
        if isinstance(rows, bool) or not isinstance(rows, numbers.Integral):
            raise TypeError(f"`rows` must be an integer. {received(rows=rows)}")
        if not 0 <= rows < 2**63:
            raise ValueError(
                f"`rows` must be at least 0 and less than 2**63. {received(rows=rows)}"
            )
        with tf.name_scope(name or "reserve"):
            return self._table.reserve(int(rows))

    @plain_python
    def shrink_to_fit(self, name: str | None = None) -> tf.Operation | None:
        """Moves the rows together and gives the memory of removed ones back to the system.

        Args:
            name: Of the operation.

        Returns:
            The operation, or None in eager mode.

        Example:
        >>> import de_core as de
        >>> users = de.Variable(dim=2, init_size=100_000)
        >>> before = users.memory_usage()["total"]
        >>> users.shrink_to_fit()
        >>> users.memory_usage()["total"] < before
        True
        """
        with tf.name_scope(name or "shrink_to_fit"):
            return self._table.shrink_to_fit()

    @plain_python
    def memory_usage(self) -> dict[str, int]:
        """Returns the bytes of all tables by part; eager mode only.

        Returns:
            `index`; `rows`, the values with their padding, places of removed rows included;
            `slots`, the same of optimizers and metadata; `strings`, the bytes of string keys and
            values; `policy`, what admission counts; `free`, held for growth; and their `total`.

        Raises:
            RuntimeError: Called in a graph, such as that of a `tf.function`.

        Example:
        >>> import de_core as de
        >>> users = de.Variable(dim=16)
        >>> users.upsert([7], tf.ones([1, 16]))
        >>> users.memory_usage()["rows"] >= 16 * 4
        True
        """
        _require_eager("memory_usage", "Call it outside of the function.")
        return _memory([table.stats() for table in self._table.tables])

    @plain_python
    def stats(self) -> dict[str, Any]:
        """Returns how full the tables are and how their keys were found; eager mode only.

        Returns:
            `rows`; `load_factor`, rows over places in the index; `hits` and `misses`, keys that
            were looked up and had a row or none; `probe_lengths`, how many rows lie in the first,
            second, … line of the index that is searched for them, the last number standing for all
            further lines; `evicted`, rows that a policy gave up; `refused`, writes of keys that
            were not admitted; `memory`, see `memory_usage`. All over all tables.

        Raises:
            RuntimeError: Called in a graph, such as that of a `tf.function`.

        Example:
        >>> import de_core as de
        >>> users = de.Variable(dim=2)
        >>> users.upsert([7], [[1.0, 2.0]])
        >>> rows = users.lookup([7, 8])
        >>> stats = users.stats()
        >>> stats["rows"], stats["hits"], stats["misses"], sum(stats["probe_lengths"])
        (1, 1, 1, 1)
        """
        _require_eager("stats", "Call it outside of the function.")
        tables = [table.stats() for table in self._table.tables]
        # A table's places in the index are as many as its index has bytes, up to a factor.
        weights = [max(1, table["bytes"]["index"]) for table in tables]
        load = sum(
            weight * table["load_factor"] for weight, table in zip(weights, tables, strict=True)
        )
        probes = itertools.zip_longest(*(table["probe_lengths"] for table in tables), fillvalue=0)
        return {
            **{part: sum(table[part] for table in tables) for part in _COUNTS},
            "load_factor": load / sum(weights),
            "probe_lengths": [sum(each) for each in probes],
            "memory": _memory(tables),
        }


def _memory(tables: list[dict[str, Any]]) -> dict[str, int]:
    parts = {part: sum(table["bytes"][part] for table in tables) for part in _PARTS}
    return {**parts, "total": sum(parts.values())}


def _require_eager(method: str, remedy: str) -> None:
    if not tf.executing_eagerly():
        raise RuntimeError(
            f"`{method}` must be called in eager mode: it returns Python values. "
            f"Received: a call in a graph. {remedy}"
        )
