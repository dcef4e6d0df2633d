"""Updates rows of a `RowStore` in small tables in memory.

An update reads its rows into a table in memory, runs the engine's normal op on this table, and
replaces the rows in the storage by the results. If another process has changed a row meanwhile, the
update of that row is repeated. So every optimizer works, and no concurrent update is lost.
"""

from __future__ import annotations

import contextlib
import functools
import tempfile
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from de_core.base.ops import library
from de_core.storage.row_bytes import (
    Column,
    decoded_keys,
    decoded_rows,
    encoded_keys,
    encoded_rows,
    ensure,
    find_slot,
    slot_dtype,
)
from de_core.storage.row_store import Row, RowStore
from de_core.tables.initial_rows import InitialRow
from de_core.tables.spec import TableSpec
from de_core.tables.table import Table

# An update fails if other processes change one of its rows during each of this many attempts.
_ATTEMPTS = 1000

#: A function of two arguments: a table in memory that holds the rows, and the keys and data that
#: are still to be processed.
Compute = Callable[[Table, list[tf.Tensor]], Any]


class MemoryTables:
    """Computes with the rows of one table of a storage in tables in memory."""

    def __init__(self, name: str, spec: TableSpec, initial: InitialRow, store: RowStore) -> None:
        self._name = name
        self._spec = spec
        self._initial = initial
        self._store = store
        self._lock = threading.Lock()
        self._table: Table | None = None
        self._blank_file = ""

    @functools.cached_property
    def blank(self) -> Table:
        """A table without rows, which returns initial rows."""
        return self.new_table()

    def new_table(self) -> Table:
        """Creates a table in memory with the properties of the table in the storage."""
        table = Table(f"{self._name}_work", self._spec, self._initial, "/CPU:0", 0)
        if self._blank_file:
            table.run(library.de_table_restore, [self._blank_file], slots=False)
        return table

    def adopt(self, blank: Table) -> None:
        """Replaces the initial rows of keys without a row by the initial rows of `blank`."""
        folder = tempfile.TemporaryDirectory(prefix="de_core_blank_")
        weakref.finalize(self, folder.cleanup)
        path = f"{folder.name}/blank.de"
        blank.run(library.de_table_save, path, values_only=True)
        with self._lock:
            self._blank_file = path
            self._table = None
            self.blank = blank

    def forget(self) -> None:
        """Drops the table used for updates, with its slots."""
        with self._lock:
            self._table = None

    @contextlib.contextmanager
    def emptied(self) -> Iterator[Table]:
        """Yields the table used for updates, without rows, to one thread at a time."""
        with self._lock:
            if self._table is None:
                self._table = self.new_table()
            else:
                self._table.run(library.de_table_clear)
            yield self._table

    def update(
        self,
        batch: list[tf.Tensor],
        columns: list[Column],
        compute: Compute,
        *,
        insert: bool = False,
    ) -> None:
        """Computes rows in memory and writes them back. Repeats this for rows that others changed.

        Args:
            batch: Keys [n], then their data.
            columns: The slots that the computation needs.
            compute: The computation.
            insert: True to write only keys that have no row.

        Raises:
            tf.errors.AbortedError: Other processes changed a row during every attempt.
        """
        names = [self._store.VALUE, *(column.text for column in columns)]
        raw = encoded_keys(batch[0])
        todo = list(dict.fromkeys(raw))
        for _ in range(_ATTEMPTS):
            old = self._store.read(names, todo)
            if insert:
                todo = [key for key, row in zip(todo, old[0], strict=True) if row is None]
                old = [[None] * len(todo) for _ in names]
            if not todo:
                return
            wanted = decoded_keys(todo, self._spec)
            with self.emptied() as table:
                for column in columns:
                    ensure(table, column)
                self.load(table, todo, columns, old)
                compute(table, batch)
                values, _ = table.find(wanted)
                slots = [find_slot(table, wanted, column) for column in columns]
            new = [encoded_rows(values), *map(encoded_rows, slots)]
            swapped = self._store.swap(
                todo, dict(zip(names, old, strict=True)), dict(zip(names, new, strict=True))
            )
            todo = [key for key, done in zip(todo, swapped, strict=True) if not done]
            if not todo:
                return
            left = set(todo)
            mask = np.array([key in left for key in raw], bool)
            batch = [tf.boolean_mask(each, mask) for each in batch]
            raw = [key for key in raw if key in left]
        raise tf.errors.AbortedError(
            None,
            None,
            f"Rows must not change during an update. Received: {len(todo)} keys of table "
            f"{self._name!r} that others changed during each of {_ATTEMPTS} attempts. "
            "Use fewer writers, or smaller batches.",
        )

    def load(
        self, table: Table, keys: Sequence[bytes], columns: list[Column], rows: list[list[Row]]
    ) -> None:
        """Copies rows from the storage into a table in memory that has the columns' slots.

        Args:
            table: The table in memory.
            keys: The rows' keys.
            columns: The slots.
            rows: The values of all keys, then the slots of all keys per column.
        """
        here = [row is not None for row in rows[0]]
        for index, each in enumerate(rows):
            pairs = [
                (key, row)
                for key, row, has_row in zip(keys, each, here, strict=True)
                if has_row and row is not None
            ]
            if not pairs:
                continue
            there = decoded_keys([key for key, _ in pairs], self._spec)
            data = [row for _, row in pairs]
            if index == 0:
                values = decoded_rows(data, self._spec.value_dtype, self._spec.dim)
                table.run(library.de_table_insert_or_assign, there, values)
            else:
                column = columns[index - 1]
                slots = decoded_rows(data, slot_dtype(self._spec.value_dtype), column.width)
                table.run(library.de_table_assign_slot, there, slots, tf.constant(column.slot))
