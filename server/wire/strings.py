"""String elements: JSON strings, or base64 in an object `{"b64": "…"}` for other bytes."""

import base64
import binascii
from typing import Any

import numpy as np

from ..errors import invalid
from ..tensors import Array


def is_b64_object(value: Any) -> bool:
    """Returns whether a parsed JSON value is an object with a single key `b64` and a string."""
    return isinstance(value, dict) and len(value) == 1 and isinstance(value.get("b64"), str)


def decode_b64(text: str) -> bytes:
    """Decodes standard base64 with optional padding.

    Raises:
        ServingError: INVALID_ARGUMENT.
    """
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except (binascii.Error, ValueError):
        raise invalid("Unable to base64 decode") from None


def bytes_array(values: list[bytes], shape: tuple[int, ...]) -> Array:
    """Creates a string tensor of `shape` from its elements in order."""
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array.reshape(shape)
