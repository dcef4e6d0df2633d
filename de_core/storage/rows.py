"""The operations of a table over a `RowStore`, on eager tensors.

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
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from de_core.base.ops import library
from de_core.storage.row_bytes import (
    Column,
    columns_in,
    columns_of,
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
from de_core.tables.table import Table, apply

# An update fails if other processes change one of its rows during each of this many attempts.
_ATTEMPTS = 1000


class StoredRows:
    """The rows of one table in a storage."""

    def __init__(self, name: str, spec: TableSpec, initial: InitialRow, store: RowStore) -> None:
        self.name = name
        self.spec = spec
        self.store = store
        self.hits = self.misses = 0
        self._initial = initial
        self._columns: dict[str, Column] = {}
        self._lock = threading.Lock()
        self._table: Table | None = None
        self._blank_file = ""

    def find(self, keys: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns values, keys.shape + [dim], and whether each key has a row, keys.shape."""
        distinct, [rows], placed = self._read(keys, self.store.VALUE)
        values, found = self._values(distinct, rows)
        values, found = placed(values), placed(tf.constant(found, tf.bool))
        hits = int(tf.math.count_nonzero(found))
        self.hits += hits
        self.misses += int(tf.size(found)) - hits
        return values, found

    def find_or_insert(self, keys: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the results of `find`, and stores the initial row of each key without a row."""
        values, found = self.find(keys)
        absent = tf.boolean_mask(tf.reshape(keys, [-1]), ~tf.reshape(found, [-1]))
        self.update([absent], [], lambda *_: None, insert=True)
        return values, found

    def contains(self, keys: tf.Tensor) -> tf.Tensor:
        """Returns whether each key has a row, keys.shape."""
        _, [rows], placed = self._read(keys, self.store.VALUE)
        return placed(_exist(rows))

    def insert_or_assign(self, keys: tf.Tensor, values: tf.Tensor, column: str = "") -> None:
        """Inserts or overwrites rows. If a key occurs twice, its last row wins."""
        pairs = dict(zip(encoded_keys(keys), encoded_rows(values), strict=True))
        self.store.write(list(pairs), {column or self.store.VALUE: list(pairs.values())})

    def accum(self, keys: tf.Tensor, old: tf.Tensor, new: tf.Tensor) -> None:
        """Adds `new - old` to rows. A key without a row gets `new`."""

        def add(table: Table, batch: list[tf.Tensor]) -> None:
            table.run(library.de_table_accum, *batch)

        self.update([keys, old, new], [], add)

    def erase(self, keys: tf.Tensor) -> None:
        """Removes rows and their slots."""
        self.store.erase(list(dict.fromkeys(encoded_keys(keys))))

    def clear(self) -> None:
        """Removes all rows."""
        self.store.clear()

    def size(self) -> tf.Tensor:
        """Returns the number of rows, an int64 scalar."""
        return tf.constant(self.store.size(), tf.int64)

    def reserve(self, *_: Any, **__: Any) -> None:
        """Does nothing, because the storage manages its memory, and tracks no changes."""

    shrink_to_fit = commit_save = reserve

    def chains(self) -> tf.Tensor:
        """Returns an empty list of chains, because a storage does not track changes for deltas."""
        return tf.constant('{"chains": []}')

    def apply(
        self,
        keys: tf.Tensor,
        gradients: tf.Tensor,
        hyper: tf.Tensor,
        owner: tf.Tensor,
        *,
        rule: str,
        average: bool,
    ) -> None:
        """Runs one optimizer step; see `TableStep`."""

        def step(table: Table, batch: list[tf.Tensor]) -> None:
            table.run(apply, *batch, hyper, owner, rule=rule, average=average)

        with self.emptied() as table:
            # A step without keys adds the rule's slots and changes nothing else.
            step(table, [keys[:0], gradients[:0]])
            columns = columns_of(table, _text(owner))
        self.remember(columns)
        columns = [self._columns[each.slot] for each in columns]
        self.update([keys, gradients], columns, step)

    def take_averages(self, owner: tf.Tensor) -> None:
        """Sets each row to the moving average that the optimizer `owner` keeps."""
        prefix = f"{_text(owner)}/"
        columns = [each for each in self.known().values() if each.slot.startswith(prefix)]

        def take(table: Table, _: list[tf.Tensor]) -> None:
            table.run(library.de_table_take_averages, owner)

        for keys in self.store.scan():
            self.update([decoded_keys(keys, self.spec)], columns, take)

    def ensure_slots(
        self, owner: tf.Tensor, initial: tf.Tensor, *, names: Sequence[str], widths: Sequence[int]
    ) -> None:
        """Records the initial values of an optimizer's slots."""
        slots = [f"{_text(owner)}/{name}" for name in names]
        self.remember(map(Column, slots, widths, initial.numpy().tolist()))

    def slots(self) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns names, string [k], and widths, int64 [k], of all slots."""
        columns = list(self.known().values())
        names = tf.constant([each.slot for each in columns], tf.string)
        return names, tf.constant([each.width for each in columns], tf.int64)

    def find_slot(self, keys: tf.Tensor, slot: tf.Tensor, **_: Any) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns one slot, keys.shape + [width], and whether each key has a row."""
        column = self._column(_text(slot))
        [values, rows], placed = self._read(keys, self.store.VALUE, column.text)[1:]
        return placed(self._slot_rows(column, rows)), placed(_exist(values))

    def assign_slot(self, keys: tf.Tensor, values: tf.Tensor, slot: tf.Tensor) -> None:
        """Writes one slot for the keys that have a row."""
        column, has_row = self._column(_text(slot)), self.contains(keys)
        self.insert_or_assign(
            tf.boolean_mask(keys, has_row), tf.boolean_mask(values, has_row), column.text
        )

    def drop_slots(self, owner: tf.Tensor) -> None:
        """Removes an optimizer's slots from all rows."""
        prefix = f"{_text(owner)}/"
        for slot, column in self.known().items():
            if slot.startswith(prefix):
                self.store.drop(column.text)
                self._columns.pop(slot, None)
        with self._lock:
            self._table = None

    def batches(self, slot: str = "") -> Iterator[tuple[tf.Tensor, tf.Tensor]]:
        """Yields keys [n] with their values, or with one slot, in batches."""
        column = self._column(slot) if slot else None
        for keys in self.store.scan():
            names = [self.store.VALUE, *([] if column is None else [column.text])]
            values, *slots = self.store.read(names, keys)
            kept = [index for index, row in enumerate(values) if row is not None]
            present = [keys[index] for index in kept]
            if not present:
                continue
            if column is None:
                rows = self._values(present, [values[index] for index in kept])[0]
            else:
                rows = self._slot_rows(column, [slots[0][index] for index in kept])
            yield decoded_keys(present, self.spec), rows

    def export(self, slot: str = "") -> tuple[tf.Tensor, tf.Tensor]:
        """Returns all keys [n] with their values or with one slot."""
        column = self._column(slot) if slot else None
        width = self.spec.dim if column is None else column.width
        dtype = self.spec.value_dtype if column is None else slot_dtype(self.spec.value_dtype)
        batches = [*self.batches(slot)]
        none = tf.zeros([0], self.spec.key_dtype), tf.zeros([0, width], dtype)
        keys, values = zip(none, *batches, strict=True)
        return tf.concat(list(keys), 0), tf.concat(list(values), 0)

    def _read(
        self, keys: tf.Tensor, *columns: str
    ) -> tuple[list[bytes], list[list[Row]], Callable[[tf.Tensor], tf.Tensor]]:
        """Reads columns for keys of any shape.

        Returns:
            The distinct keys; for each column, their rows; and a function that puts a result for
            each distinct key into the order and shape of the keys.
        """
        given = encoded_keys(tf.reshape(keys, [-1]))
        numbers = {key: number for number, key in enumerate(dict.fromkeys(given))}
        places = None
        if len(numbers) < len(given):
            places = np.fromiter((numbers[key] for key in given), np.int64, len(given))

        def placed(results: tf.Tensor) -> tf.Tensor:
            if places is not None:
                results = tf.gather(results, places)
            return tf.reshape(results, tf.concat([tf.shape(keys), tf.shape(results)[1:]], 0))

        distinct = list(numbers)
        return distinct, self.store.read(columns, distinct), placed

    def _values(self, keys: list[bytes], rows: list[Row]) -> tuple[tf.Tensor, Any]:
        """Returns rows [n, dim] and bool [n]: whether a row exists. Others are initial rows."""
        present = [row for row in rows if row is not None]
        if len(present) == len(rows):
            values = decoded_rows(present, self.spec.value_dtype, self.spec.dim)
            return values, np.ones(len(rows), bool)
        found = np.array([row is not None for row in rows], bool)
        initial = self.blank.find(decoded_keys(keys, self.spec))[0]
        if not present:
            return initial, found
        mixed = initial.numpy().copy()
        mixed[found] = decoded_rows(present, self.spec.value_dtype, self.spec.dim).numpy()
        return tf.constant(mixed, self.spec.value_dtype), found

    def _slot_rows(self, column: Column, rows: list[Row]) -> tf.Tensor:
        dtype = slot_dtype(self.spec.value_dtype)
        initial = tf.fill([1, column.width], tf.cast(column.initial, dtype))
        begins = encoded_rows(initial)[0]
        full = [begins if row is None else row for row in rows]
        return decoded_rows(full, dtype, column.width)

    def _column(self, slot: str) -> Column:
        column = self._columns.get(slot) or self.known().get(slot)
        if column is None:
            raise tf.errors.NotFoundError(
                None,
                None,
                f"The slot must be one of table {self.name!r}: {sorted(self.known())}. "
                f"Received: {slot!r}.",
            )
        return column

    def known(self) -> dict[str, Column]:
        """Returns the slots in the storage and the slots recorded by `remember`, by name."""
        return {**self._columns, **columns_in(self.store)}

    def remember(self, columns: Iterable[Column]) -> None:
        """Records slots that the storage may not have yet. A known slot keeps its initial value."""
        new = {each.slot: each for each in columns if each.slot not in self._columns}
        if new:
            there = columns_in(self.store)
            self._columns.update({slot: there.get(slot, each) for slot, each in new.items()})
            with self._lock:
                self._table = None

    @functools.cached_property
    def blank(self) -> Table:
        """A table without rows, which returns initial rows."""
        return self.new_table()

    def new_table(self) -> Table:
        """Creates a table in memory with the properties of the table in the storage."""
        table = Table(f"{self.name}_work", self.spec, self._initial, "/CPU:0", 0)
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

    @contextlib.contextmanager
    def emptied(self) -> Iterator[Table]:
        """Yields the table used for updates, without rows, to one thread at a time."""
        with self._lock:
            if self._table is None:
                self._table = ensure(self.new_table(), self.known().values())
            else:
                self._table.run(library.de_table_clear)
            yield self._table

    def update(
        self,
        batch: list[tf.Tensor],
        columns: list[Column],
        compute: Callable[[Table, list[tf.Tensor]], Any],
        *,
        insert: bool = False,
    ) -> None:
        """Computes rows in memory and writes them back. Repeats this for rows that others changed.

        Args:
            batch: Keys [n], then their data.
            columns: The slots that the computation needs.
            compute: A function of a table in memory that holds the rows, and of the keys and data
                that are still to be processed.
            insert: True to write only keys that have no row.

        Raises:
            tf.errors.AbortedError: Other processes changed a row during every attempt.
        """
        names = [self.store.VALUE, *(column.text for column in columns)]
        raw = encoded_keys(batch[0])
        todo = list(dict.fromkeys(raw))
        for _ in range(_ATTEMPTS):
            old = self.store.read(names, todo)
            if insert:
                todo = [key for key, row in zip(todo, old[0], strict=True) if row is None]
                old = [[None] * len(todo) for _ in names]
            if not todo:
                return
            wanted = decoded_keys(todo, self.spec)
            with self.emptied() as table:
                ensure(table, columns)
                self.load(table, todo, columns, old)
                compute(table, batch)
                values, _ = table.find(wanted)
                slots = [find_slot(table, wanted, column) for column in columns]
            new = [encoded_rows(values), *map(encoded_rows, slots)]
            swapped = self.store.swap(
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
            f"{self.name!r} that others changed during each of {_ATTEMPTS} attempts. "
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
        for column, each in zip([None, *columns], rows, strict=True):
            pairs = [
                (key, row)
                for key, row, value in zip(keys, each, rows[0], strict=True)
                if value is not None and row is not None
            ]
            if not pairs:
                continue
            there = decoded_keys([key for key, _ in pairs], self.spec)
            data = [row for _, row in pairs]
            if column is None:
                values = decoded_rows(data, self.spec.value_dtype, self.spec.dim)
                table.run(library.de_table_insert_or_assign, there, values)
            else:
                slots = decoded_rows(data, slot_dtype(self.spec.value_dtype), column.width)
                table.run(library.de_table_assign_slot, there, slots, tf.constant(column.slot))


def _exist(rows: list[Row]) -> tf.Tensor:
    return tf.constant([row is not None for row in rows], tf.bool)


def _text(value: tf.Tensor) -> str:
    return bytes(tf.convert_to_tensor(value).numpy()).decode()
