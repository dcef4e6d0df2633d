"""Checks the keys and values that users pass to a table."""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from de_core.base.keras import is_building, is_symbolic, only_builds
from de_core.base.types import Ids, TensorLike
from de_core.tables.sharded import ShardedTable

_watching: contextvars.ContextVar[list[tuple[Ids, ShardedTable]]] = contextvars.ContextVar(
    "de_core_ids"
)


def checked_keys(keys: TensorLike, table: ShardedTable) -> tf.Tensor:
    """Returns `keys` as a tensor of a table's key dtype, and records that they are dense.

    Tensors and arrays must already have that dtype. Python numbers and strings are converted if
    nothing is lost.

    Raises:
        TypeError: `keys` have another dtype, or are sparse or ragged.
    """
    if isinstance(keys, (tf.SparseTensor, tf.RaggedTensor)):
        is_sparse = isinstance(keys, tf.SparseTensor)
        raise TypeError(
            f"`keys` of table {table.name!r} must be a dense tensor. Received: a "
            f"tf.{'Sparse' if is_sparse else 'Ragged'}Tensor of shape {keys.shape}. Pass its "
            f"`{'values' if is_sparse else 'flat_values'}`. To look up its rows, use "
            f"de.embedding_lookup{'_sparse' if is_sparse else ''}."
        )
    if tf.is_tensor(keys) and only_builds(keys):
        return placeholder_keys(keys, table)
    note_kind("dense", table)
    return _converted_for("keys", keys, table.spec.key_dtype, table)


def note_kind(kind: str, table: ShardedTable) -> None:
    """Records that a table was called with "dense", "ragged" or "sparse" ids."""
    kinds = table.kinds_of_ids
    if kind not in kinds and not is_building():
        kinds.add(kind)


@contextlib.contextmanager
def watched_placeholders() -> Iterator[list[tuple[Ids, ShardedTable]]]:
    """Yields a list of the pairs (placeholder, table) that are looked up in the block."""
    seen: list[tuple[Ids, ShardedTable]] = []
    token = _watching.set(seen)
    try:
        yield seen
    finally:
        _watching.reset(token)


def placeholder_keys(ids: Ids, table: ShardedTable) -> Ids:
    """Returns keys with the shape of Keras's placeholder ids of floats (see `only_builds`)."""
    _watching.get([]).append((ids, table))
    key_dtype = table.spec.key_dtype
    if isinstance(ids, tf.SparseTensor):
        return ids.with_values(tf.zeros_like(ids.values, key_dtype))
    return tf.ragged.map_flat_values(lambda flat: tf.zeros_like(flat, key_dtype), ids)


def checked_pairs(
    keys: TensorLike, values: TensorLike, table: ShardedTable
) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns keys [n] and values [n, dim] as tensors of a table's dtypes.

    Args:
        keys: Any shape.
        values: Shape keys.shape + [dim], or keys.shape if dim is 1.
        table: The table; its dtypes, dim and name are used.

    Raises:
        TypeError: `keys` or `values` have another dtype.
        ValueError: The shapes do not match.
    """
    spec = table.spec
    keys = checked_keys(keys, table)
    values = _converted_for("values", values, spec.value_dtype, table)
    if spec.dim == 1 and values.shape.rank is not None and values.shape.rank == keys.shape.rank:
        values = tf.expand_dims(values, -1)
    wanted = keys.shape.concatenate([spec.dim])
    if not values.shape.is_compatible_with(wanted):
        raise ValueError(
            f"`values` must be of shape keys.shape + [dim], here {wanted}, one row for each key of "
            f"table {table.name!r}. Received: values.shape={values.shape}, "
            f"keys.shape={keys.shape}."
        )
    if not values.shape.is_fully_defined():
        check = tf.debugging.Assert(
            tf.reduce_all(tf.equal(tf.shape(values), tf.concat([tf.shape(keys), [spec.dim]], 0))),
            [
                "`values` must be of shape keys.shape + [dim]. Received: values.shape=",
                tf.shape(values),
                "keys.shape=",
                tf.shape(keys),
            ],
        )
        with tf.control_dependencies([check]):
            values = tf.identity(values)
    return tf.reshape(keys, [-1]), tf.reshape(values, [-1, spec.dim])


def _converted_for(
    argument: str, value: TensorLike, dtype: tf.DType, table: ShardedTable
) -> tf.Tensor:
    if table.cast is not None and _dtype_of(value) not in (None, dtype):
        made = table.cast(argument, value, dtype, table.name)
        if made is not None:
            return made
    return converted(argument, value, dtype, table.name)


def converted(argument: str, value: TensorLike, dtype: tf.DType, table_name: str) -> tf.Tensor:
    """Converts `value` to a tensor of a dtype, or raises a TypeError that names the argument."""
    given = _dtype_of(value)
    if given in (None, dtype):
        try:
            return tf.convert_to_tensor(value, dtype=dtype if given is None else None)
        except (TypeError, ValueError) as error:
            raise TypeError(
                f"`{argument}` of table {table_name!r} must be {dtype.name}. "
                f"Received: {argument}={value!r} (of type {type(value).__name__})."
            ) from error
    remedy = f"Pass {dtype.name}, or make the table for {given.name}."
    if given.is_integer and dtype.is_integer:
        remedy = f"Cast them with tf.cast({argument}, tf.{dtype.name})."
    elif given.is_floating and argument == "keys":
        remedy = "Only integers and strings are ids."
    raise TypeError(
        f"`{argument}` of table {table_name!r} must be {dtype.name}. "
        f"Received: {argument}.dtype={given.name} (of type {type(value).__name__}). {remedy}"
    )


def _dtype_of(value: Any) -> tf.DType | None:
    """Returns a tensor's or array's dtype, or None for Python values (any dtype fits).

    Arrays of other libraries, such as a pandas.Series, have the dtype of their numpy array.
    """
    if not tf.is_tensor(value):
        if not hasattr(value, "__array__") or is_symbolic(value):
            return None
        value = np.asarray(value)
    dtype = tf.as_dtype(value.dtype)
    return tf.string if dtype in (tf.string, tf.variant) else dtype
