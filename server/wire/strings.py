"""String elements: JSON strings, or base64 in an object `{"b64": "…"}` for other bytes."""

import base64
import binascii
from typing import Annotated, Any

import msgspec
import numpy as np

from ..errors import invalid
from ..tensors import Array


class B64(msgspec.Struct, forbid_unknown_fields=True):
    """Bytes that are not UTF-8, in base64."""

    b64: Annotated[str, msgspec.Meta(extra_json_schema={"contentEncoding": "base64"})]


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


def element_bytes(value: str | B64) -> bytes:
    """Returns the bytes of a string element from a typed decoder."""
    return value.encode() if isinstance(value, str) else decode_b64(value.b64)
