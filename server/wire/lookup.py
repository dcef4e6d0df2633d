"""Bodies of `:lookup` requests and answers.

`{"table": "user", "ids": [[7, "9007199254740993"], []], "combiner": "mean"}` requests one embedding
per bag, which is a list of ids. Ids are integers, or strings of decimal digits for clients whose
numbers are doubles. For a table of string keys they are strings, or `{"b64": …}` for other bytes.
"""

import base64
import itertools
import re
from typing import Annotated, Any, Literal, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt
import orjson
from msgspec import Meta

from ..errors import ServingError, invalid
from ..limits import Limits
from ..tensors import Array, DType, Kind, dtype_of_numpy
from .json_tensors import json_ready, numeric_array
from .json_text import debug_string, parse_value, type_name
from .tensor_bytes import bytes_array, decode_b64, is_b64_object, octets

Combiner = Annotated[
    Literal["none", "sum", "mean", "sqrtn"],
    Meta(description="How to combine the embeddings of a bag."),
]
Missing = Annotated[
    Literal["default", "error", "null"],
    Meta(description="The answer for an unknown id: its initial row, a 404, or null."),
]

Found = npt.NDArray[np.bool_]

_DECIMAL = re.compile(r"-?[0-9]{1,20}")
_ID = {"oneOf": [{"type": "integer"}, {"type": "string"}, {"$ref": "#/components/schemas/B64"}]}


class LookupBody(msgspec.Struct, forbid_unknown_fields=True):
    """Ids of a table."""

    ids: Annotated[
        Any,
        Meta(
            description="Ids, or bags of ids. Integers may be written as strings.",
            extra_json_schema={
                "type": "array",
                "items": {"oneOf": [*_ID["oneOf"], {"type": "array", "items": _ID}]},
            },
        ),
    ]
    table: Annotated[str, Meta(description="Optional if the model has only one table.")] = ""
    combiner: Combiner = "none"
    missing: Missing = "default"
    format: Annotated[
        Literal["list", "b64"], Meta(description="Numbers, or little-endian bytes in base64.")
    ] = "list"


class Ids(NamedTuple):
    """Decoded ids.

    Attributes:
        flat: All ids in order, shape (n,).
        lengths: The number of ids per bag; None for a flat list of ids.
    """

    flat: Array
    lengths: list[int] | None


_BODY = msgspec.json.Decoder(LookupBody)


def decode_lookup(body: bytes, limits: Limits) -> LookupBody:
    """Decodes the body of a `:lookup` request. `decode_ids` checks its ids: it knows their type.

    Raises:
        ServingError: INVALID_ARGUMENT.
    """
    limits.check_elements(body)
    try:
        return _BODY.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        parse_value(body)  # names a syntax error and its place
        if not isinstance(error, msgspec.ValidationError):
            raise invalid(f"JSON Parse error: {error}") from None
        raise invalid(
            "A lookup must be an object with `ids` and optionally `table`, `combiner` (none, "
            "sum, mean, sqrtn), `missing` (default, error, null) and `format` (list, b64). "
            f"Received: {str(error)[:256]}"
        ) from None


def decode_ids(values: Any, dtype: DType, limits: Limits) -> Ids:
    """Decodes the ids of a lookup.

    `values` is a list of ids, or a list of bags, which are lists of ids of any length. `dtype` is
    the key type of the table: int64, int32 or string.

    Raises:
        ServingError: INVALID_ARGUMENT, naming the first invalid id.
    """
    if not isinstance(values, list):
        raise invalid(
            "`ids` must be a list of ids, or a list of lists of ids. "
            f"Received: {debug_string(values)} (of type {type_name(values)})"
        )
    lengths = None
    types = set(map(type, values))
    if list in types:
        if types != {list}:
            index = next(i for i, value in enumerate(values) if not isinstance(value, list))
            raise invalid(
                "`ids` must be a list of ids, or a list of lists of ids, not a mix. "
                f"Received: ids[{index}]={debug_string(values[index])}"
            )
        limits.check_count(len(values), "bags")
        lengths = list(map(len, values))
        values = list(itertools.chain.from_iterable(values))
        types = set(map(type, values))
    limits.check_count(len(values), "ids")
    if dtype.kind is Kind.STRING:
        texts = [_string_id(value, index) for index, value in enumerate(values)]
        return Ids(bytes_array(texts, (len(texts),)), lengths)
    if not types <= {int}:
        values = [_integer_id(value, index) for index, value in enumerate(values)]
    try:
        return Ids(numeric_array(values, dtype), lengths)
    except OverflowError:
        info = np.iinfo(dtype.numpy)
        worst = next(value for value in values if not info.min <= value <= info.max)
        raise invalid(
            f"An id of this table must fit {dtype.name}. Received: {debug_string(worst)}"
        ) from None


def decode_raw_ids(body: bytes, dtype: DType, limits: Limits) -> Ids:
    """Reads little-endian ids of a table's key type.

    Raises:
        ServingError: INVALID_ARGUMENT for a body of the wrong length, or a table of strings.
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
    limits.check_count(count, "ids")
    # The memory of `bytes` is aligned.
    return Ids(np.frombuffer(body, dtype.numpy), None)


def bags_of(ids: Array, lengths: Array | None, limits: Limits) -> Ids:
    """Converts ids that came as tensors.

    Args:
        ids: The ids. Ids of rank 2 are bags of equal size.
        lengths: The sizes of the bags of flat ids, or None.
        limits: Bounds the number of bags.

    Raises:
        ServingError: INVALID_ARGUMENT if the lengths do not match the ids, or for too many bags.
    """
    sizes = None
    if lengths is not None:
        limits.check_count(lengths.size, "bags")
        sizes = lengths.tolist() if lengths.ndim == 1 and lengths.dtype.kind in "iu" else [-1]
        if ids.ndim != 1 or min(sizes, default=0) < 0 or sum(sizes) != ids.size:
            raise invalid(
                "lengths must hold the size of each bag, whose sum is the number of ids, and both "
                f"must be vectors. Received: {lengths.size} lengths for {ids.size} ids"
            )
    elif ids.ndim == 2:
        limits.check_count(len(ids), "bags")
        sizes = [ids.shape[1]] * len(ids)
    return Ids(ids.reshape(-1), sizes)


def _integer_id(value: Any, index: int) -> int:
    if type(value) is int:
        return value
    if isinstance(value, str) and _DECIMAL.fullmatch(value):
        return int(value)
    raise _wrong_id("an integer, or a string of decimal digits", value, index)


def _string_id(value: Any, index: int) -> bytes:
    if isinstance(value, str):
        return value.encode()
    if is_b64_object(value):
        return decode_b64(value["b64"])
    raise _wrong_id("a string, as the keys of this table are strings", value, index)


def _wrong_id(wanted: str, value: Any, index: int) -> ServingError:
    return invalid(
        f"An id must be {wanted}. Received: id number {index}: {debug_string(value)} "
        f"(of type {type_name(value)})"
    )


def _sums(values: Array, lengths: list[int]) -> Array:
    """Returns the sum of each bag's values."""
    sizes = np.asarray(lengths, np.int64)
    filled = sizes > 0
    sums = np.zeros((len(lengths), *values.shape[1:]), values.dtype)
    if filled.any():
        starts = np.cumsum(sizes) - sizes
        sums[filled] = np.add.reduceat(values, starts[filled], axis=0)
    return sums


def combined(
    rows: Array, found: Found, lengths: list[int] | None, combiner: str, nullable: bool
) -> tuple[Array, Found | None, list[int] | None]:
    """Combines the rows of each bag if the request names a combiner.

    Args:
        rows: Shape (n, dim), the rows of all bags in order.
        found: Shape (n,), whether the table holds each id.
        lengths: The size of each bag, whose sum is n; None for a flat list of ids.
        combiner: `none`, `sum`, `mean` (divides by the number of rows) or `sqrtn` (by its root).
        nullable: True if unknown ids become null. Then pooling skips them.

    Returns:
        The vectors of the answer, C-contiguous; which of them were found, None if none of them
        becomes null; and the sizes of their bags, None if they are in no bags. A vector that
        becomes null is NaN (0, False or "" where there is no NaN). A bag without rows has zeros.
        The `sum` of integers has 64 bits. 16-bit floats are combined and returned as float32.

    Raises:
        ServingError: INVALID_ARGUMENT for a combiner of strings.
    """
    present = found
    if combiner != "none" and lengths is not None:
        if rows.dtype.kind == "O":
            raise invalid(
                f"A combiner needs a table of numbers. Received: combiner {combiner} for strings"
            )
        counted = found if nullable else np.ones_like(found)
        if rows.dtype.kind in "iu":
            rows = rows.astype(f"{rows.dtype.kind}8" if combiner == "sum" else np.float64)
        elif rows.dtype.itemsize < 4:
            rows = rows.astype(np.float32)
        rows = _sums(np.where(counted[:, None], rows, np.zeros((), rows.dtype)), lengths)
        counts = _sums(counted.astype(np.int64), lengths)
        if combiner != "sum":
            divisor = np.maximum(counts, 1).astype(rows.dtype)
            rows /= (np.sqrt(divisor) if combiner == "sqrtn" else divisor)[:, None]
        present, lengths = counts > 0, None  # a bag was found if the table holds any of its ids
    if not nullable or present.all():
        return np.ascontiguousarray(rows), None, lengths
    rows, kind = rows.copy(), rows.dtype.kind
    rows[~present] = 0 if kind in "iub" else b"" if kind == "O" else np.nan
    return rows, present, lengths


def nest(values: Any, lengths: list[int] | None) -> Any:
    """Divides a sequence into bags; returns it unchanged if the request had a flat list of ids."""
    if lengths is None:
        return values
    bags, start = [], 0
    for length in lengths:
        bags.append(values[start : start + length])
        start += length
    return bags


def encode_lookup(
    request: LookupBody, lengths: list[int] | None, rows: Array, found: Found
) -> bytes:
    """Encodes the answer to a lookup as JSON.

    The shape of embeddings in base64 is ids.shape + (dim,) if all bags have equal length, and
    (n, dim) otherwise.
    """
    nullable = request.missing == "null"
    vectors, present, bags = combined(rows, found, lengths, request.combiner, nullable)
    embeddings: Any
    if request.format == "b64":
        shape: tuple[int, ...] = vectors.shape
        if bags and len(set(bags)) == 1:
            shape = (len(bags), bags[0], vectors.shape[1])
        embeddings = {
            "b64": base64.b64encode(octets(vectors).data).decode(),
            "dtype": dtype_of_numpy(vectors.dtype).array_name,
            "shape": list(shape),
        }
    elif present is not None:
        each = zip(vectors, present.tolist(), strict=True)
        embeddings = nest([json_ready("", row) if there else None for row, there in each], bags)
    elif bags is None:
        embeddings = json_ready("", vectors)
    else:
        embeddings = [json_ready("", bag) for bag in nest(vectors, bags)]
    answer = {"embeddings": embeddings, "found": nest(found.tolist(), lengths)}
    return orjson.dumps(answer, option=orjson.OPT_SERIALIZE_NUMPY)
