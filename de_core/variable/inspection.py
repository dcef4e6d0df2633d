"""Reports a table's content, statistics and memory, and reserves or frees memory."""

from __future__ import annotations

import itertools
import numbers
from collections.abc import Iterator, Sequence
from typing import Any, NoReturn

import tensorflow as tf
from rich import filesize

from de_core.base.checks import check_integer, received, require_eager
from de_core.base.keras import LEGACY
from de_core.base.no_autograph import no_autograph
from de_core.base.ops import library
from de_core.base.types import Id, TensorLike
from de_core.tables import keys_and_values
from de_core.tables.sharded import ShardedTable

_PARTS = ("index", "rows", "slots", "strings", "policy", "free")
_COUNTS = (
    "rows",
    "hits",
    "misses",
    "evicted",
    "expired",
    "refused",
    "lookups",
    "updates",
    "gradients_read",
)


class TableParams(int):
    """The number of values in tables. `model.summary()` shows it with the rows and their bytes.

    Keras 3 formats the numbers of a summary with `:,` and draws each line of the result below the
    other. tf_keras calls `str`.
    """

    #: The numbers of values, rows and bytes as text.
    parts: tuple[str, str, str]
    _text: str

    def __new__(cls, values: int, rows: int, size: int) -> TableParams:
        """Returns `values`."""
        params = super().__new__(cls, values)
        params.parts = (f"{values:,}", f"{rows:,} rows", filesize.decimal(size))
        # Keras computes the totals from the shapes of its own variables. tf_keras cuts a long text.
        lines = "\n".join([*params.parts, "not in totals"])
        params._text = ", ".join(params.parts) if LEGACY else lines
        return params

    def __format__(self, spec: str) -> str:
        """Returns the text of a summary if `spec` is ",", otherwise the formatted number."""
        return self._text if spec == "," else format(int(self), spec)

    if LEGACY:

        def __str__(self) -> str:
            """Returns the text of a summary."""
            return self._text


class Inspection:
    """Reports a table's content, statistics and memory. A base class of `Variable`.

    Example:
    >>> import de_core as de
    >>> users = de.Variable(dim=1, name="users")
    >>> users.upsert([7], [[0.5]])
    >>> users[[7]].numpy().tolist(), 7 in users, 8 in users, len(users)
    ([[0.5]], True, False, 1)
    """

    _table: ShardedTable
    lookup: Any

    @no_autograph
    def size(self, index: int | None = None, name: str | None = None) -> tf.Tensor:
        """Returns the number of rows, an int64 scalar.

        Args:
            index: Number of the shard to count; None for all shards.
            name: Name of the operation.

        Raises:
            TypeError: `index` is not an integer.
            ValueError: There is no shard `index`.
        """
        check_integer("index", index, 0, len(self._table.tables) - 1, or_none=True)
        with tf.name_scope(name or "size"):
            return self._table.size(index)

    @no_autograph
    def contains(self, keys: TensorLike, name: str | None = None) -> tf.Tensor:
        """Returns whether each key has a row. Does not read the rows.

        Args:
            keys: Tensor, array or list of the key dtype, any shape.
            name: Name of the operation.

        Returns:
            bool, keys.shape.

        Raises:
            TypeError: `keys` have another dtype.

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

    @no_autograph
    def export(self, name: str | None = None) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns all keys [n] and their values [n, dim], in no particular order."""
        with tf.name_scope(name or "export"):
            return self._table.export()

    @no_autograph
    def export_batches(self) -> Iterator[tuple[tf.Tensor, tf.Tensor]]:
        """Iterates over all rows, a few thousand at a time. Eager mode only.

        Use it for tables that are too large to copy at once. Other threads may write meanwhile.
        The iterator returns a row exactly once if the row exists all the time. It may or may not
        return a row that is inserted or removed meanwhile.

        Returns:
            An iterator of keys [n] and values [n, dim], n > 0, in no particular order.

        Raises:
            RuntimeError: Called in a graph, for example in a `tf.function`.

        Example:
        >>> import de_core as de
        >>> users = de.Variable(dim=1)
        >>> users.upsert(range(10_000), tf.ones([10_000, 1]))
        >>> sum(len(keys) for keys, values in users.export_batches())
        10000
        """
        require_eager("export_batches", "`export` returns all rows in graphs too.")
        self._table.router.require_whole("`export_batches`", "Use `export`, or a checkpoint.")
        return self._table.export_batches()

    @no_autograph
    def reserve(self, rows: int, name: str | None = None) -> tf.Operation | None:
        """Reserves memory for `rows` rows in total, divided among the shards.

        Args:
            rows: Number of rows, including existing rows. A smaller number than exist does nothing.
            name: Name of the operation.

        Returns:
            The operation, or None in eager mode.

        Raises:
            TypeError: `rows` is not a whole number.
            ValueError: `rows` is not in [0, 2^63).
            tf.errors.InvalidArgumentError: A shard would get more rows than it can number, about
                6.8e10.
            tf.errors.ResourceExhaustedError: Memory is exhausted. The table stays unchanged.

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
            share = tf.constant(-(-int(rows) // self._table.router.count), tf.int64)
            return self._table.each(library.de_table_reserve, share)

    @no_autograph
    def shrink_to_fit(self, name: str | None = None) -> tf.Operation | None:
        """Compacts the rows and returns the memory of removed rows to the system.

        Args:
            name: Name of the operation.

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
            return self._table.each(library.de_table_shrink_to_fit)

    def count_params(self) -> int:
        """Returns the number of values: rows times `dim`. Returns 0 in a graph.

        `model.summary()` shows it with the number of rows and the bytes of memory that
        `memory_usage` returns as `total`.

        Example:
        >>> import de_core as de
        >>> users = de.Variable(dim=2)
        >>> users.upsert([7, 8], tf.ones([2, 2]))
        >>> users.count_params() + 0
        4
        """
        return params_of([self._table])

    @no_autograph
    def memory_usage(self) -> dict[str, int]:
        """Returns the table's memory in bytes, by use. Eager mode only.

        Returns:
            A dict: `index`, the hash index; `rows`, values with padding, including memory of
            removed rows; `slots`, optimizer slots and metadata, counted like `rows`; `strings`,
            string keys and values; `policy`, counters of the admission policy; `free`, reserved for
            growth; `total`, the sum.

        Raises:
            RuntimeError: Called in a graph, for example in a `tf.function`.

        Example:
        >>> import de_core as de
        >>> users = de.Variable(dim=16)
        >>> users.upsert([7], tf.ones([1, 16]))
        >>> users.memory_usage()["rows"] >= 16 * 4
        True
        """
        require_eager("memory_usage", "Call it outside of the function.")
        return _memory([table.stats() for table in self._table.tables])

    @no_autograph
    def stats(self) -> dict[str, Any]:
        """Returns statistics of the table, summed over its shards. Eager mode only.

        Returns:
            A dict: `rows`, the number of rows; `load_factor`, the used fraction of the index;
            `hits` and `misses`, looked-up keys with and without a row; `probe_lengths`, a list
            whose element i is the number of rows that a search finds in the (i + 1)-th index line
            it reads (the last element counts all further lines; estimated from a sample of a large
            table); `evicted`, evicted rows; `expired`, the expired ones among them; `refused`,
            writes of keys that were not admitted; `lookups` and `updates`, the number of lookups
            and optimizer steps of the shards, with their wall time `lookup_seconds` and
            `update_seconds`; `gradients_read` and `gradient_norms`, the number of gradients whose
            norms were computed (every 16th, if finite) and the sum of these norms; `memory`, see
            `memory_usage`. With a `tier` also `tier`, a dict: `hot_rows` in memory and `cold_rows`
            on disk; `disk_bytes` of the files; `reads`, blocks read from them; `filter_bytes`, the
            memory of their index; `rows_in` and `rows_out`, rows moved into and out of memory.

        Raises:
            RuntimeError: Called in a graph, for example in a `tf.function`.

        Example:
        >>> import de_core as de
        >>> users = de.Variable(dim=2)
        >>> users.upsert([7], [[1.0, 2.0]])
        >>> rows = users.lookup([7, 8])
        >>> stats = users.stats()
        >>> stats["rows"], stats["hits"], stats["misses"], sum(stats["probe_lengths"])
        (1, 1, 1, 1)
        """
        require_eager("stats", "Call it outside of the function.")
        return stats_of(self._table)

    def __getitem__(self, keys: TensorLike) -> tf.Tensor:
        """Looks up keys."""
        return self.lookup(keys)

    def __contains__(self, key: Id) -> bool:
        """Returns whether a key has a row. Eager mode only."""
        return bool(self.contains([key])[0])

    def __len__(self) -> int:
        """Returns the number of rows. Eager mode only."""
        return int(self.size())

    def __bool__(self) -> bool:
        """Returns True, also for an empty table."""
        return True

    # Without these two Python would look up the keys 0, 1, 2, … without an end.
    __iter__ = None
    __reversed__ = None

    def __tf_tensor__(self, dtype: object = None, name: object = None) -> NoReturn:
        """Refuses to become a tensor. TensorFlow calls it, for example in `tf.gather`."""
        raise TypeError(
            "A table is no tensor, because its rows have no numbers: look up ids by "
            f"de.embedding_lookup(table, ids). {received(table=self)}"
        )

    def __str__(self) -> str:
        """Returns the `repr`, in eager mode with the number of rows and their bytes."""
        if not tf.executing_eagerly():
            return repr(self)
        params: Any = self.count_params()
        _, rows, size = params.parts
        return f"{repr(self)[:-1]}, {rows}, {size}>"


def params_of(tables: Sequence[ShardedTable]) -> int:
    """Returns the number of values in tables, a `TableParams`. Returns 0 in a graph."""
    if not tf.executing_eagerly():
        return 0
    stats = [stats_of(table) for table in tables]
    rows = [each["rows"] for each in stats]
    values = sum(count * table.spec.dim for count, table in zip(rows, tables, strict=True))
    return TableParams(values, sum(rows), sum(each["memory"]["total"] for each in stats))


def stats_of(table: ShardedTable) -> dict[str, Any]:
    """Returns the statistics that `Variable.stats` describes."""
    tables = [each.stats() for each in table.tables]
    # Average the shards' load factors, weighted by the number of entries in a shard's index,
    # which is proportional to the index's bytes.
    weights = [max(1, table["bytes"]["index"]) for table in tables]
    load = sum(weight * table["load_factor"] for weight, table in zip(weights, tables, strict=True))
    tiers = [table["tier"] for table in tables if "tier" in table]
    tier = {part: sum(each[part] for each in tiers) for part in tiers[0]} if tiers else {}
    probes = itertools.zip_longest(*(table["probe_lengths"] for table in tables), fillvalue=0)
    return {
        **{part: sum(table[part] for table in tables) for part in _COUNTS},
        "lookup_seconds": 1e-9 * sum(table["lookup_nanoseconds"] for table in tables),
        "update_seconds": 1e-9 * sum(table["update_nanoseconds"] for table in tables),
        "gradient_norms": sum(table["gradient_norms"] for table in tables),
        "load_factor": load / sum(weights),
        "probe_lengths": [sum(each) for each in probes],
        "memory": _memory(tables),
        **({"tier": tier} if tiers else {}),
    }


def _memory(tables: list[dict[str, Any]]) -> dict[str, int]:
    parts = {part: sum(table["bytes"][part] for table in tables) for part in _PARTS}
    return {**parts, "total": sum(parts.values())}
