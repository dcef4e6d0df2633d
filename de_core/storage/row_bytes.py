"""Encodes keys and rows as bytes for a `RowStore`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from de_core.tables.spec import TableSpec

_LENGTH_BYTES = 4
_ROWS_AT_ONCE = 1024


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
        return [b"".join(map(_with_length, row)) for row in array.tolist()]
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
    # Decode in parts that fit into the CPU cache, which is twice as fast.
    parts = []
    for at in range(0, max(len(rows), 1), _ROWS_AT_ONCE):
        array = np.frombuffer(b"".join(rows[at : at + _ROWS_AT_ONCE]), dtype.as_numpy_dtype)
        parts.append(tf.constant(array.reshape(-1, dim), dtype))
    return tf.concat(parts, 0) if len(parts) > 1 else parts[0]


def _rows_of(array: Any, width: int) -> list[bytes]:
    """Splits an array into rows of `width` bytes. NumPy converts its void dtype to `bytes`."""
    return list(np.ascontiguousarray(array).view(f"V{width}").ravel().tolist())


def _with_length(text: bytes) -> bytes:
    return len(text).to_bytes(_LENGTH_BYTES, "little") + text


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
