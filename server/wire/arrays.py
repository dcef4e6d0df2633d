"""Converts numbers from JSON to numpy arrays, and checks overflow, range and raggedness."""

from typing import Any

import numpy as np

from ..tensors import Array, DType, Kind


def numeric_array(values: Any, dtype: DType) -> Array:
    """Turns nested lists of Python numbers into an array.

    The values must already have the right Python type (`int` for integers, `int` or `float` for
    floats, `bool` for booleans), because numpy would silently convert 1.5, True and "1" to
    integers.

    Args:
        values: A number, or equally long nested lists of numbers.
        dtype: The requested element type.

    Raises:
        ValueError: The lists are ragged.
        OverflowError: An integer does not fit the element type.
    """
    if dtype.kind is Kind.FLOAT:
        # Doubles beyond float's range become infinities, and tiny ones become zero.
        with np.errstate(over="ignore", under="ignore"):
            if dtype.name == "bfloat16":
                return np.asarray(values, np.float64).astype(dtype.numpy)
            return np.asarray(values, dtype.numpy)
    if dtype.kind is Kind.INT and dtype.name != "int64":
        # Older numpy wraps around and newer numpy raises. A comparison works with both.
        wide = np.asarray(values, np.int64)
        info = np.iinfo(dtype.numpy)
        if wide.size and (wide.min() < info.min or wide.max() > info.max):
            raise OverflowError(f"a value is outside the range of {dtype.name}")
        return wide.astype(dtype.numpy)
    return np.asarray(values, dtype.numpy)
