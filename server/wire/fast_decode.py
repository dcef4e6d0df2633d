"""Decodes request bodies with typed msgspec decoders: nearly all requests take this path.

It accepts only bodies that are certainly valid. For all others it raises `FastPathMissError`. Then
`reference_decode`, which follows TensorFlow Serving's rules exactly, returns either the tensors or
the exact error message. So this module needs no error texts, and the other one need not be fast.
"""

import functools
import itertools
import types
from collections.abc import Callable
from operator import attrgetter
from typing import Annotated, Any, NamedTuple

import msgspec

from ..errors import ServingError
from ..tensors import Array, DType, Kind, SignatureSpec, TensorSpec
from .arrays import numeric_array
from .json_text import first_element, leading_rank
from .limits import Limits
from .strings import B64, bytes_array, element_bytes

_ELEMENT_TYPE: dict[Kind, Any] = {
    Kind.INT: int,
    # Older numpy wraps negative numbers around instead of raising.
    Kind.UINT64: Annotated[int, msgspec.Meta(ge=0)],
    Kind.FLOAT: float,
    Kind.BOOL: bool,
    Kind.STRING: str | B64,
}

RowFields = tuple[tuple[str, Kind, int | None], ...]


class FastPathMissError(Exception):
    """This body needs the reference decoder."""


class _RowDecoder(NamedTuple):
    """Reads rows of named inputs, and extracts each input from a row."""

    decoder: msgspec.json.Decoder[Any]
    columns: list[Callable[[Any], Any]]


def decode_rows(raw: msgspec.Raw, signature: SignatureSpec, limits: Limits) -> dict[str, Array]:
    """Reads the `instances` of a request.

    Args:
        raw: The value of `instances`, undecoded.
        signature: The requested signature.
        limits: Limits on the request.

    Returns:
        One array per input; the first dimension counts instances.

    Raises:
        FastPathMissError: The reference decoder must read the body.
    """
    view = memoryview(raw)
    first = first_element(view)
    if len(signature.inputs) == 1:
        (spec,) = signature.inputs.values()
        if first != b"{" or spec.dtype.kind is Kind.STRING:
            try:
                array = decode_value(view, spec.dtype, limits)
            except FastPathMissError:
                if first != b"{":
                    raise
            else:
                if not array.ndim or not len(array):
                    raise FastPathMissError
                return {spec.name: array}
    return _decode_named_rows(view, signature, limits)


def decode_columns(raw: msgspec.Raw, signature: SignatureSpec, limits: Limits) -> dict[str, Array]:
    """Reads the `inputs` of a request; arguments and errors as for `decode_rows`."""
    view = memoryview(raw)
    if bytes(view[:1]) != b"{":
        if len(signature.inputs) != 1:
            raise FastPathMissError
        (spec,) = signature.inputs.values()
        return {spec.name: decode_value(view, spec.dtype, limits)}
    try:
        values = _MEMBERS.decode(view)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise FastPathMissError from None
    if len(values) == 1 and "b64" in values:
        # This is either one string element in base64, or the only input has the name `b64`. The
        # reference decoder decides.
        raise FastPathMissError
    try:
        return {
            name: decode_value(memoryview(values[name]), spec.dtype, limits)
            for name, spec in signature.inputs.items()
        }
    except KeyError:
        raise FastPathMissError from None


def decode_value(view: memoryview | bytes, dtype: DType, limits: Limits) -> Array:
    """Reads one JSON value, a scalar or nested lists, as a tensor of `dtype`.

    The number of opening brackets gives the rank: in a well-formed tensor every element is nested
    as deeply as the first.

    Raises:
        FastPathMissError: The reference decoder must read the value.
        ServingError: INVALID_ARGUMENT for a rank beyond the limit.
    """
    rank = leading_rank(view)
    limits.check_rank(rank)
    try:
        values = _value_decoder(dtype.kind, rank).decode(view)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise FastPathMissError from None
    return _to_array(values, dtype, rank)


_MEMBERS = msgspec.json.Decoder(dict[str, msgspec.Raw])


@functools.lru_cache(maxsize=256)
def _value_decoder(kind: Kind, rank: int) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(_nested(kind, rank))


def _nested(kind: Kind, rank: int) -> Any:
    if kind not in _ELEMENT_TYPE:
        raise FastPathMissError
    nested = _ELEMENT_TYPE[kind]
    for _ in range(rank):
        nested = types.GenericAlias(list, (nested,))
    return nested


def _decode_named_rows(
    view: memoryview, signature: SignatureSpec, limits: Limits
) -> dict[str, Array]:
    named = _row_decoder(signature.row_fields)
    try:
        rows = named.decoder.decode(view)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise FastPathMissError from None
    if not rows:
        raise FastPathMissError
    arrays = {}
    for (name, _, rank), column in zip(signature.row_fields, named.columns, strict=True):
        spec: TensorSpec = signature.inputs[name]
        values = [column(row) for row in rows]
        if rank is None:
            joined = b"[" + b",".join(values) + b"]"
            arrays[name] = decode_value(joined, spec.dtype, limits)
        else:
            limits.check_rank(rank + 1)
            arrays[name] = _to_array(values, spec.dtype, rank + 1)
    return arrays


@functools.lru_cache(maxsize=256)
def _row_decoder(fields: RowFields) -> _RowDecoder:
    """Creates the decoder of rows with these inputs. It refuses missing and extra keys."""
    attributes = [f"f{i}" for i in range(len(fields))]
    field_types = [msgspec.Raw if rank is None else _nested(kind, rank) for _, kind, rank in fields]
    try:
        row = msgspec.defstruct(
            "Row",
            list(zip(attributes, field_types, strict=True)),
            rename=dict(zip(attributes, (name for name, _, _ in fields), strict=True)),
            forbid_unknown_fields=True,
        )
    except ValueError:
        # Quotes and backslashes cannot be field names.
        raise FastPathMissError from None
    return _RowDecoder(msgspec.json.Decoder(list[row]), [attrgetter(a) for a in attributes])  # type: ignore[valid-type]


def _to_array(values: Any, dtype: DType, rank: int) -> Array:
    try:
        if dtype.kind is Kind.STRING:
            return _string_array(values, rank)
        array = numeric_array(values, dtype)
    except (ValueError, OverflowError, ServingError):
        raise FastPathMissError from None
    if array.ndim != rank:
        raise FastPathMissError
    return array


def _string_array(values: Any, rank: int) -> Array:
    shape = []
    flat = [values]
    for _ in range(rank):
        sizes = {len(item) for item in flat}
        if len(sizes) > 1:
            raise FastPathMissError
        # Inside an empty list all further sizes are 0.
        shape.append(sizes.pop() if sizes else 0)
        flat = list(itertools.chain.from_iterable(flat))
    if rank and not flat:
        raise FastPathMissError
    return bytes_array([element_bytes(value) for value in flat], tuple(shape))
