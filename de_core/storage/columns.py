"""Stores optimizer slots in columns of a `RowStore`."""

from __future__ import annotations

from typing import NamedTuple

import tensorflow as tf

from de_core.base.ops import library
from de_core.storage.row_store import RowStore
from de_core.tables.table import Table


class Column(NamedTuple):
    """One slot of the rows of a table.

    Attributes:
        slot: The slot's name in the table, "owner/name".
        width: Numbers per row.
        initial: Initial value.
    """

    slot: str
    width: int
    initial: float

    @property
    def text(self) -> str:
        """The column's name in the storage, which encodes all fields."""
        return f"{self.slot}#{self.width}#{self.initial!r}"

    @classmethod
    def parsed(cls, text: str) -> Column:
        """Parses a column's name in the storage."""
        slot, width, initial = text.rsplit("#", 2)
        return cls(slot, int(width), float(initial))


def columns_in(store: RowStore) -> dict[str, Column]:
    """Returns the slots in a storage, by name."""
    names = [name for name in store.columns() if name != store.VALUE]
    return {column.slot: column for column in map(Column.parsed, names)}


def columns_of(table: Table, owner: str) -> list[Column]:
    """Returns one optimizer's slots of an empty table, or all slots if `owner` is empty."""
    names, widths = table.run(library.de_table_slots)
    found = []
    for name, width in zip(names.numpy().tolist(), widths.numpy().tolist(), strict=True):
        slot = name.decode()
        if slot.startswith(f"{owner}/" if owner else ""):
            found.append(Column(slot, width, _initial(table, slot, width)))
    return found


def slot_dtype(value_dtype: tf.DType) -> tf.DType:
    """Returns the dtype of optimizer slots for values of this dtype."""
    return tf.float64 if value_dtype == tf.float64 else tf.float32


def find_slot(table: Table, keys: tf.Tensor, column: Column) -> tf.Tensor:
    """Reads one slot of a table in memory, [n, width]."""
    return table.run(
        library.de_table_find_slot,
        keys,
        tf.constant(column.slot),
        Tvalues=slot_dtype(table.spec.value_dtype),
        dim=column.width,
    )[0]


def ensure(table: Table, column: Column) -> None:
    """Adds a slot to a table in memory unless the slot exists."""
    owner, _, name = column.slot.rpartition("/")
    initial = tf.constant([column.initial], tf.float64)
    table.run(
        library.de_table_ensure_slots,
        tf.constant(owner),
        initial,
        names=[name],
        widths=[column.width],
    )


def _initial(table: Table, slot: str, width: int) -> float:
    key = tf.constant(["" if table.spec.key_dtype == tf.string else 0], table.spec.key_dtype)
    return float(find_slot(table, key, Column(slot, width, 0.0))[0, 0])
