"""Lookups in bytes, for clients that send thousands of ids.

A request is a sequence of little-endian ids; table, combiner and other options are query
parameters. An answer is the embeddings, little-endian and row by row, then one byte per id that
says whether it was found. The headers `x-embeddings-dtype` and `x-embeddings-shape` give the size
of the embeddings.
"""

import functools
import sys
from typing import Any

import numpy as np

from ..errors import invalid
from ..tensors import Array, DType, Kind
from .limits import Limits
from .lookup import Ids
from .pooling import Found
from .tensor_bytes import octets


def decode_raw_ids(body: bytes, dtype: DType, limits: Limits) -> Ids:
    """Reads little-endian ids of a table's key type.

    Raises:
        ServingError: INVALID_ARGUMENT for a body of the wrong length, or a table of strings.

    Example:
        >>> from server.tensors import dtype_of_name
        >>> body = np.array([7, -1], "<i8").tobytes()
        >>> decode_raw_ids(body, dtype_of_name("int64"), Limits()).flat
        array([ 7, -1])
    """
    if dtype.kind is not Kind.INT:
        raise invalid(
            "application/octet-stream carries integer ids, and the keys of this table are "
            f"of type {dtype.name}: send JSON, or bytes by the Open Inference Protocol."
        )
    size = dtype.numpy.itemsize
    count, rest = divmod(len(body), size)
    if rest:
        raise invalid(f"The body must hold ids of {size} bytes each. Received: {len(body)} bytes")
    limits.check_ids(count)
    # The memory of `bytes` is aligned.
    ids = np.frombuffer(body, dtype.numpy)
    return Ids(ids.byteswap() if sys.byteorder == "big" else ids, None)


@functools.lru_cache(maxsize=256)
def _headers(dtype: np.dtype[Any], shape: tuple[int, ...]) -> tuple[tuple[str, str], ...]:
    return (
        ("x-embeddings-dtype", dtype.name),
        ("x-embeddings-shape", ",".join(map(str, shape))),
    )


def encode_raw(
    rows: Array, found: Found
) -> tuple[tuple[Array, Array], tuple[tuple[str, str], ...]]:
    """Encodes embeddings and found flags as bytes.

    Returns:
        Embeddings and flags as flat uint8 arrays, which share the tensors' memory if possible; and
        the headers, from which clients know where the embeddings end.
    """
    return (octets(rows), octets(found)), _headers(rows.dtype, rows.shape)
