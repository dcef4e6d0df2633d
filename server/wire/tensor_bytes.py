"""Tensors as bytes: little-endian in row-major order, each string after its length.

In JSON, a string element is a string, or base64 in an object `{"b64": "…"}` for other bytes.
"""

import base64
import binascii
import struct
from typing import Any

import numpy as np

from ..errors import invalid
from ..tensors import Array, DType

_LENGTH = struct.Struct("<I")
_OCTET = np.dtype(np.uint8)


def array_of_bytes(view: memoryview, dtype: DType, count: int) -> Array:
    r"""Reads a flat tensor from its bytes.

    `view` has the bytes of this tensor only, and `count` is the number of elements.

    Raises:
        ServingError: INVALID_ARGUMENT for the wrong number of bytes.

    Example:
        >>> from server.tensors import dtype_of_name
        >>> array_of_bytes(memoryview(b"\x07\x00\xff\xff"), dtype_of_name("int16"), 2)
        array([ 7, -1], dtype=int16)
    """
    element = dtype.numpy
    if element.kind == "O":
        return _strings(view, count)
    itemsize = element.itemsize
    if len(view) != count * itemsize:
        raise invalid(
            f"{count} values of {itemsize} bytes must take {count * itemsize} bytes. "
            f"Received: {len(view)} bytes"
        )
    if element.kind == "b":
        # numpy allows only the bytes 0 and 1 in a boolean.
        return np.frombuffer(view, np.uint8) != 0
    array = np.frombuffer(view, element)
    # Copy unaligned values, because TensorFlow needs aligned memory. Values are unaligned after
    # JSON of an odd length, for example.
    return array if array.flags.aligned else array.copy()


def _strings(view: memoryview, count: int) -> Array:
    strings: list[bytes] = []
    end = 0
    # Each string needs at least four bytes for its length, so a huge count fails here.
    if 4 * count <= len(view):
        while len(strings) < count and end + 4 <= len(view):
            start = end + 4
            end = start + _LENGTH.unpack_from(view, end)[0]
            strings.append(bytes(view[start:end]))
    if len(strings) != count or end != len(view):
        raise invalid(
            f"{count} strings, each after its length in 4 bytes, must take all bytes. "
            f"Received: {len(view)} bytes"
        )
    return bytes_array(strings, (count,))


def octets(array: Array) -> Array:
    """Returns a tensor's bytes as a flat uint8 array, which shares its memory if possible."""
    if array.dtype.kind == "O":
        joined = b"".join(
            part for value in array.reshape(-1) for part in (_LENGTH.pack(len(value)), value)
        )
        return np.frombuffer(joined, np.uint8)
    return array.ravel().view(_OCTET)


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
