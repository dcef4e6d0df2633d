"""Encodes keys, rows and the names of optimizer slots' columns for a `RowStore`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from de_core.base.ops import library
from de_core.storage.row_store import RowStore
from de_core.tables.spec import TableSpec
from de_core.tables.table import Table

_LENGTH_BYTES = 4


def encoded_keys(keys: tf.Tensor) -> list[bytes]:
    """Encodes keys [n]: integers as little-endian int64, strings unchanged."""
    if keys.dtype == tf.string:
        return list(keys.numpy().tolist())
    return _rows_of(keys.numpy().astype("<i8"), 8)


def decoded_keys(keys: Sequence[bytes], spec: TableSpec) -> tf.Tensor:
    """Decodes keys [n] of a table."""
    if spec.key_dtype == tf.string:
        return tf.constant(list(keys), tf.string, shape=[len(keys)])
    numbers = np.frombuffer(b"".join(keys), "<i8")
    return tf.constant(numbers.astype(spec.key_dtype.as_numpy_dtype), shape=[len(keys)])


def encoded_rows(rows: tf.Tensor) -> list[bytes]:
    """Encodes rows [n, dim] as bytes per row: numbers back to back, strings after their lengths."""
    array = rows.numpy()
    if rows.dtype == tf.string:
        return [
            b"".join(len(text).to_bytes(_LENGTH_BYTES, "little") + text for text in row)
            for row in array.tolist()
        ]
    return _rows_of(array, array.shape[1] * array.dtype.itemsize)


def decoded_rows(rows: Sequence[bytes], dtype: tf.DType, dim: int) -> tf.Tensor:
    """Decodes rows to [n, dim].

    Raises:
        tf.errors.DataLossError: A row has a wrong length.
    """
    if dtype == tf.string:
        return tf.constant([_strings(row, dim) for row in rows], tf.string, shape=[len(rows), dim])
    width = dim * dtype.size
    wrong = set(map(len, rows)) - {width}
    if wrong:
        raise _damaged(f"{width} bytes", f"{min(wrong)} bytes")
    array = np.frombuffer(b"".join(rows), dtype.as_numpy_dtype)
    return tf.constant(array.reshape(-1, dim), dtype)


def _rows_of(array: Any, width: int) -> list[bytes]:
    """Splits an array into rows of `width` bytes. NumPy converts its void dtype to `bytes`."""
    return list(np.ascontiguousarray(array).view(f"V{width}").ravel().tolist())


def _strings(row: bytes, dim: int) -> list[bytes]:
    found, at = [], 0
    while at < len(row):
        begin = at + _LENGTH_BYTES
        at = begin + int.from_bytes(row[at:begin], "little")
        found.append(row[begin:at])
    if len(found) != dim or at != len(row):
        raise _damaged(f"{dim} strings", f"{len(row)} bytes with {len(found)}")
    return found


def _damaged(wanted: Any, found: Any) -> tf.errors.DataLossError:
    return tf.errors.DataLossError(
        None,
        None,
        f"Each row in the storage must have {wanted}, like the table's rows. Received: {found}. "
        "Check whether another program wrote it.",
    )


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
    key = tf.constant(["" if table.spec.key_dtype == tf.string else 0], table.spec.key_dtype)
    found = []
    for name, width in zip(names.numpy().tolist(), widths.numpy().tolist(), strict=True):
        slot = name.decode()
        if slot.startswith(f"{owner}/" if owner else ""):
            initial = find_slot(table, key, Column(slot, width, 0.0))[0, 0]
            found.append(Column(slot, width, float(initial)))
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


def ensure(table: Table, columns: Iterable[Column]) -> Table:
    """Adds the slots that a table in memory lacks, and returns the table."""
    for column in columns:
        owner, _, name = column.slot.rpartition("/")
        table.run(
            library.de_table_ensure_slots,
            tf.constant(owner),
            tf.constant([column.initial], tf.float64),
            names=[name],
            widths=[column.width],
        )
    return table
