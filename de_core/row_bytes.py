"""Keys and rows as the bytes that a `RowStore` keeps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from de_core.config import TableSpec

_LENGTH_BYTES = 4


def encoded_keys(keys: tf.Tensor) -> list[bytes]:
    """Returns keys [n] as bytes: integers as little-endian int64, strings as they are."""
    if keys.dtype == tf.string:
        return list(keys.numpy().tolist())
    return _cut(keys.numpy().astype("<i8").tobytes(), 8)


def decoded_keys(keys: Sequence[bytes], spec: TableSpec) -> tf.Tensor:
    """Returns keys [n] of a table."""
    if spec.key_dtype == tf.string:
        return tf.constant(list(keys), tf.string, shape=[len(keys)])
    numbers = np.frombuffer(b"".join(keys), "<i8")
    return tf.constant(numbers.astype(spec.key_dtype.as_numpy_dtype), shape=[len(keys)])


def encoded_rows(rows: tf.Tensor) -> list[bytes]:
    """Returns rows [n, dim] as bytes each: numbers side by side, strings after their lengths."""
    array = rows.numpy()
    if rows.dtype == tf.string:
        return [b"".join(map(_with_length, row)) for row in array.tolist()]
    return _cut(array.tobytes(), array.shape[1] * array.dtype.itemsize)


def decoded_rows(rows: Sequence[bytes], dtype: tf.DType, dim: int) -> tf.Tensor:
    """Returns rows [n, dim].

    Raises:
        tf.errors.DataLossError: One is not as long as a row of the table.
    """
    if dtype == tf.string:
        return tf.constant([_strings(row, dim) for row in rows], tf.string, shape=[len(rows), dim])
    width = dim * dtype.size
    wrong = next((len(row) for row in rows if len(row) != width), None)
    if wrong is not None:
        raise _damaged(f"{width} bytes", f"{wrong} bytes")
    array = np.frombuffer(b"".join(rows), dtype.as_numpy_dtype)
    return tf.constant(array, dtype, shape=[len(rows), dim])


def _cut(data: bytes, width: int) -> list[bytes]:
    return [data[at : at + width] for at in range(0, len(data), width)]


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
        f"Each row in the storage must be of {wanted}, as the table's. Received: {found}. Was it "
        "written by something else?",
    )
