"""Bodies of `:lookup` requests and answers.

`{"table": "user", "ids": [[7, "9007199254740993"], []], "combiner": "mean"}` requests one embedding
per bag. Ids are integers, or strings of decimal digits for clients whose numbers are doubles. For a
table of string keys they are strings, or `{"b64": …}` for other bytes.
"""

import dataclasses
import itertools
import re
from typing import Annotated, Any, Literal, NamedTuple

import msgspec
import numpy as np

from ..errors import ServingError, invalid
from ..tensors import Array, DType, Kind
from .arrays import numeric_array
from .json_quote import debug_string, type_name
from .json_text import leading_rank, parse_value
from .limits import Limits
from .strings import B64, bytes_array, element_bytes

Combiner = Annotated[
    Literal["none", "sum", "mean", "sqrtn"],
    msgspec.Meta(description="How to combine the embeddings of a bag."),
]
Missing = Annotated[
    Literal["default", "error", "null"],
    msgspec.Meta(description="The answer for an unknown id: its initial row, a 404, or null."),
]

_DECIMAL = re.compile(r"-?[0-9]{1,20}")


_ID = {"oneOf": [{"type": "integer"}, {"type": "string"}, {"$ref": "#/components/schemas/B64"}]}


class LookupBody(msgspec.Struct, forbid_unknown_fields=True):
    """Ids of a table."""

    ids: Annotated[
        msgspec.Raw,
        msgspec.Meta(
            description="Ids, or bags of ids. Integers may be written as strings.",
            extra_json_schema={
                "type": "array",
                "items": {"oneOf": [*_ID["oneOf"], {"type": "array", "items": _ID}]},
            },
        ),
    ]
    table: Annotated[str, msgspec.Meta(description="Optional if the model has only one table.")] = (
        ""
    )
    combiner: Combiner = "none"
    missing: Missing = "default"
    format: Annotated[
        Literal["list", "b64"],
        msgspec.Meta(description="Numbers, or little-endian bytes in base64."),
    ] = "list"


@dataclasses.dataclass(frozen=True)
class LookupRequest:
    """A lookup with undecoded ids: only the table knows their type.

    Attributes:
        table: The table's name; empty for the model's only table.
        ids: The ids, undecoded.
        combiner: How the rows of a bag are combined; `none` returns every row.
        missing: The answer for an id that the table does not hold: its initial row, an error, or
            null.
        format: `list` for JSON numbers, `b64` for little-endian bytes in base64.
    """

    table: str
    ids: msgspec.Raw
    combiner: str
    missing: str
    format: str


class Ids(NamedTuple):
    """Decoded ids.

    Attributes:
        flat: All ids in order, shape (n,).
        lengths: The number of ids per bag; None for a flat list of ids.
    """

    flat: Array
    lengths: list[int] | None


_BODY = msgspec.json.Decoder(LookupBody)


def decode_lookup(body: bytes, limits: Limits) -> LookupRequest:
    """Decodes the body of a `:lookup` request, except for its ids.

    Raises:
        ServingError: INVALID_ARGUMENT.
    """
    limits.check_elements(body)
    try:
        envelope = _BODY.decode(body)
    except msgspec.ValidationError as error:
        raise invalid(
            "A lookup must be an object with `ids` and optionally `table`, `combiner` (none, "
            "sum, mean, sqrtn), `missing` (default, error, null) and `format` (list, b64). "
            f"Received: {error}"
        ) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        parse_value(body)  # raises with the error and its place
        raise invalid(f"JSON Parse error: {error}") from None
    return LookupRequest(
        table=envelope.table,
        ids=envelope.ids,
        combiner=envelope.combiner,
        missing=envelope.missing,
        format=envelope.format,
    )


def decode_ids(raw: msgspec.Raw, dtype: DType, limits: Limits) -> Ids:
    """Decodes the ids of a lookup.

    Args:
        raw: A list of ids, or a list of bags, which are lists of ids of any length.
        dtype: The key type of the table: int64, int32 or string.
        limits: Limits on the request.

    Raises:
        ServingError: INVALID_ARGUMENT, naming the first invalid id.
    """
    view = memoryview(raw)
    values = _decode_typed(view, dtype.kind)
    typed = values is not None
    if not typed:
        values = parse_value(bytes(view))
    if not isinstance(values, list):
        raise invalid(
            "`ids` must be a list of ids, or a list of lists of ids. "
            f"Received: {debug_string(values)} (of type {type_name(values)})"
        )
    nested = any(isinstance(value, list) for value in values)
    if nested:
        for index, value in enumerate(values):
            if not isinstance(value, list):
                raise invalid(
                    "`ids` must be a list of ids, or a list of lists of ids, not a mix. "
                    f"Received: ids[{index}]={debug_string(value)}"
                )
        lengths = [len(value) for value in values]
        values = list(itertools.chain.from_iterable(values))
    limits.check_ids(len(values))
    if dtype.kind is not Kind.STRING and not typed:
        values = [_integer_id(value, index) for index, value in enumerate(values)]
    return Ids(_flat_ids(values, dtype), lengths if nested else None)


def bags_of(ids: Array, lengths: Array | None) -> Ids:
    """Converts ids that came as tensors.

    Args:
        ids: The ids. Ids of rank 2 are bags of equal size.
        lengths: The sizes of the bags of flat ids, or None.

    Raises:
        ServingError: INVALID_ARGUMENT if the lengths do not match the ids.
    """
    sizes = [ids.shape[1]] * ids.shape[0] if ids.ndim == 2 else None
    if lengths is not None:
        sizes = lengths.tolist() if lengths.ndim == 1 and lengths.dtype.kind in "iu" else [-1]
        if ids.ndim != 1 or min(sizes, default=0) < 0 or sum(sizes) != ids.size:
            raise invalid(
                "lengths must hold the size of each bag, whose sum is the number of ids, and both "
                f"must be vectors. Received: {lengths.size} lengths for {ids.size} ids"
            )
    return Ids(ids.reshape(-1), sizes)


def _decode_typed(view: memoryview, kind: Kind) -> Any:
    decoder = _DECODERS.get((kind, leading_rank(view)))
    if decoder is None:
        return None
    try:
        return decoder.decode(view)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


_DECODERS: dict[tuple[Kind, int], msgspec.json.Decoder[Any]] = {
    (Kind.INT, 1): msgspec.json.Decoder(list[int]),
    (Kind.INT, 2): msgspec.json.Decoder(list[list[int]]),
    (Kind.STRING, 1): msgspec.json.Decoder(list[str | B64]),
    (Kind.STRING, 2): msgspec.json.Decoder(list[list[str | B64]]),
}


def _flat_ids(values: list[Any], dtype: DType) -> Array:
    if dtype.kind is Kind.STRING:
        return bytes_array([_string_id(value, i) for i, value in enumerate(values)], (len(values),))
    try:
        return numeric_array(values, dtype)
    except OverflowError:
        info = np.iinfo(dtype.numpy)
        worst = next(value for value in values if not info.min <= value <= info.max)
        raise invalid(f"An id of this table must fit {dtype.name}. Received: {worst}") from None


def _integer_id(value: Any, index: int) -> int:
    if type(value) is int:
        return value
    if isinstance(value, str) and _DECIMAL.fullmatch(value):
        return int(value)
    raise _wrong_id("an integer, or a string of decimal digits", value, index)


def _string_id(value: Any, index: int) -> bytes:
    if isinstance(value, dict) and len(value) == 1 and isinstance(value.get("b64"), str):
        value = B64(value["b64"])
    if isinstance(value, str | B64):
        return element_bytes(value)
    raise _wrong_id("a string, as the keys of this table are strings", value, index)


def _wrong_id(wanted: str, value: Any, index: int) -> ServingError:
    return invalid(
        f"An id must be {wanted}. Received: id number {index}: {debug_string(value)} "
        f"(of type {type_name(value)})"
    )
