"""Converts arrays and initial values of another dtype, as `tfra` does."""

from __future__ import annotations

import numbers
import warnings
from typing import Any

import numpy as np
import tensorflow as tf

from de_core.base.checks import received
from de_core.tables import initial_rows

_warned: set[tuple[str, str]] = set()


def cast_array(argument: str, value: Any, dtype: tf.DType, table_name: str) -> tf.Tensor | None:
    """Converts an array to a table's dtype. Warns once per table and argument.

    Returns:
        A tensor, or None for a tensor: `tfra` refuses tensors of another dtype too.

    Raises:
        TypeError: Keys would change, so that two ids might become one.
    """
    if tf.is_tensor(value) or dtype == tf.string or np.asarray(value).dtype.kind not in "iufb":
        return None
    array = np.asarray(value)
    with np.errstate(invalid="ignore"):  # NaN has no whole number; the comparison notices it
        converted = array.astype(dtype.as_numpy_dtype)
    if argument == "keys" and (converted != array).any():
        raise TypeError(
            f"`keys` of table {table_name!r} must be {dtype.name} without rounding. "
            f"{received(keys=value)} Pass whole numbers in the range of {dtype.name}."
        )
    if (table_name, argument) not in _warned:
        _warned.add((table_name, argument))
        warnings.warn(
            f"`{argument}` of table {table_name!r} are converted from {array.dtype} to "
            f"{dtype.name}, as tfra does. Pass {dtype.name}.",
            stacklevel=2,
        )
    return tf.constant(converted)


def initial_value(initializer: Any, dtype: tf.DType, dim: int, init_size: int) -> Any:
    """Returns an initializer that `de.Variable` takes.

    Args:
        initializer: As for `de.Variable`. An array of one element fills the row. Numbers for a
            table of integers are cast. A variance scaling has the fan `dim` if `init_size` is 0.
        dtype: Dtype of the values. Not strings.
        dim: Values per row.
        init_size: Number of rows to expect; 0 if unknown.
    """
    if tf.is_tensor(initializer):
        initializer = initial_rows.values_of(initializer)
    if isinstance(initializer, (numbers.Number, list, tuple, np.ndarray, np.generic)):
        values = np.asarray(initializer)
        with np.errstate(invalid="ignore"):  # NaN has no whole number
            there = values.astype(dtype.as_numpy_dtype) if dtype.is_integer else values
        if dtype.is_integer and (there != values).any():
            warnings.warn(
                f"`initializer` should hold {dtype.name} numbers. {received(initializer=values)} "
                f"They are cast to {there}, as in tfra.",
                stacklevel=3,
            )
        return there.reshape([]) if there.shape == (1,) else there
    return initial_rows.with_fans(initializer, init_size or dim, dim)


def string_row(initializer: Any, dim: int) -> tf.Tensor:
    """Returns the strings [dim] of a key without a row.

    The initializer is one string or `dim` strings, or a function `f(shape)` that returns them.

    Raises:
        TypeError: `initializer` is something else.
    """
    try:
        if callable(initializer):
            config: dict[str, Any] = getattr(initializer, "get_config", dict)()
            initializer = config["value"] if "value" in config else initializer([dim])
        row = tf.reshape(tf.convert_to_tensor(initializer, tf.string), [-1])
        return tf.broadcast_to(row, [dim])
    except (TypeError, ValueError, tf.errors.OpError) as error:
        raise TypeError(
            f"The `initializer` of string values must give one string or {dim}. "
            f"{received(initializer=initializer)}"
        ) from error
