"""Converts arrays of another dtype, as `tfra` does."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import tensorflow as tf

from de_core.base.checks import received

_warned: set[tuple[str, str]] = set()


def cast_array(argument: str, value: Any, dtype: tf.DType, table_name: str) -> tf.Tensor | None:
    """Converts an array to a table's dtype. Warns once per table and argument.

    Args:
        argument: "keys" or "values".
        value: An array or tensor of another dtype.
        dtype: The table's dtype.
        table_name: The table's name.

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
