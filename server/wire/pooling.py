"""Pools the rows of each bag, a list of ids, to one vector. Nests the answer like the ids."""

import base64
import functools
import sys
from typing import Any

import numpy as np
import numpy.typing as npt

from ..tensors import Array
from .encode import json_ready
from .tensor_bytes import octets

Found = npt.NDArray[np.bool_]


def pool(rows: Array, counted: Found, lengths: list[int], combiner: str) -> Array:
    """Combines the rows of each bag.

    Args:
        rows: Shape (n, dim), the rows of all bags in order.
        counted: Shape (n,); pooling skips rows that are False here.
        lengths: The size of each bag; their sum is n.
        combiner: `sum`, `mean` (divides by the number of counted rows) or `sqrtn` (by its root).

    Returns:
        Shape (bags, dim); zeros for a bag without counted rows. Integer rows stay integers with
        `sum`. 16-bit floats are combined and returned as float32.
    """
    if rows.dtype.kind not in "iu" and rows.dtype.itemsize < 4:
        rows = rows.astype(np.float32)
    elif rows.dtype.kind in "iu" and combiner != "sum":
        rows = rows.astype(np.float64)
    sizes = np.asarray(lengths, np.int64)
    starts = np.cumsum(sizes) - sizes
    filled = sizes > 0
    pooled = np.zeros((len(lengths), rows.shape[1]), rows.dtype)
    counts = np.zeros(len(lengths), np.int64)
    if filled.any():
        kept = np.where(counted[:, None], rows, np.zeros((), rows.dtype))
        pooled[filled] = np.add.reduceat(kept, starts[filled], axis=0)
        counts[filled] = np.add.reduceat(counted.astype(np.int64), starts[filled])
    if combiner != "sum":
        divisor = np.maximum(counts, 1).astype(rows.dtype)
        if combiner == "sqrtn":
            divisor = np.sqrt(divisor)
        pooled /= divisor[:, None]
    return pooled


def bag_found(found: Found, lengths: list[int]) -> Found:
    """Returns for each bag whether the table holds any of its ids."""
    ends = np.cumsum(np.asarray(lengths, np.int64))
    totals = np.concatenate([[0], np.cumsum(found)])
    return np.asarray(totals[ends] > totals[ends - np.asarray(lengths, np.int64)])


def nest(values: Any, lengths: list[int] | None) -> Any:
    """Divides a sequence into bags; returns it unchanged if the request had a flat list of ids."""
    if lengths is None:
        return values
    bags, start = [], 0
    for length in lengths:
        bags.append(values[start : start + length])
        start += length
    return bags


def embeddings_json(rows: Array, present: Found | None, lengths: list[int] | None) -> Any:
    """Converts embeddings for orjson.

    Args:
        rows: Shape (n, dim).
        present: Shape (n,); rows that are False here become null. None if no row does.
        lengths: Divides the rows into bags, if given.
    """
    if present is not None and not present.all():
        nulled = [
            json_ready("", row) if there else None
            for row, there in zip(rows, present.tolist(), strict=True)
        ]
        return nest(nulled, lengths)
    if lengths is None:
        return json_ready("", rows)
    return [json_ready("", bag) for bag in nest(rows, lengths)]


def embeddings_b64(rows: Array, present: Found | None, lengths: list[int] | None) -> dict[str, Any]:
    """Returns embeddings as little-endian bytes: `{"b64", "dtype", "shape"}`.

    The shape is ids.shape + (dim,) if all bags have equal length, and (n, dim) otherwise. Null rows
    hold NaN (zero for integers).
    """
    rows = nulled(rows, present)
    shape: tuple[int, ...] = rows.shape
    if lengths and len(set(lengths)) == 1:
        shape = (len(lengths), lengths[0], rows.shape[1])
    if sys.byteorder == "big":
        rows = rows.byteswap()
    return {
        "b64": base64.b64encode(np.ascontiguousarray(rows).tobytes()).decode(),
        "dtype": rows.dtype.name,
        "shape": list(shape),
    }


def nulled(rows: Array, present: Found | None) -> Array:
    """Returns rows with NaN (zero for integers) where `present` is False."""
    if present is None or present.all():
        return rows
    rows = rows.copy()
    rows[~present] = 0 if rows.dtype.kind in "iu" else np.nan
    return rows


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
