"""Reads tensors from parsed JSON by TensorFlow Serving's rules, with its messages.

Evenly nested lists of one type are converted in few calls. All other values are read element by
element: that finds the wrong element for the message, or reads a value of an unusual form.
"""

import itertools
from collections.abc import Mapping, Sequence, Set
from operator import itemgetter
from typing import Any

import numpy as np

from ..errors import Code, ServingError, invalid
from ..limits import Limits
from ..tensors import (
    Array,
    DType,
    Kind,
    SignatureSpec,
    TensorSpec,
    format_shape,
)
from .json_quote import debug_string, type_name
from .strings import bytes_array, decode_b64, is_b64_object

# The types of parsed JSON values that are elements of each kind, whatever their value.
_TYPES: dict[Kind, set[type]] = {
    Kind.INT: {int},
    Kind.UINT64: {int},
    Kind.FLOAT: {int, float},
    Kind.BOOL: {bool},
    Kind.STRING: {str},
    Kind.OTHER: set(),
}


def numeric_array(values: Sequence[Any], dtype: DType) -> Array:
    """Converts Python numbers to a vector.

    The values must already have the right Python type (`int` for integers, `int` or `float` for
    floats, `bool` for booleans), because numpy would silently convert 1.5, True and "1" to
    integers.

    Raises:
        OverflowError: A number does not fit the element type.
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
    if dtype.kind is Kind.UINT64 and min(values, default=0) < 0:
        raise OverflowError("a value is negative")
    return np.asarray(values, dtype.numpy)


def decode_rows(
    document: Mapping[str, Any], signature: SignatureSpec, limits: Limits
) -> dict[str, Array]:
    """Reads `document["instances"]`.

    Args:
        document: The parsed request.
        signature: The requested signature.
        limits: Limits on the request.

    Returns:
        One array per input; the first dimension counts instances.

    Raises:
        ServingError: INVALID_ARGUMENT, naming the element and the input.
    """
    instances = document["instances"]
    if not isinstance(instances, list):
        raise invalid(
            f"JSON Value: {debug_string(document)} Expecting 'instances' to be an list/array"
        )
    if not instances:
        raise invalid(f"JSON Value: {debug_string(document)} No values in 'instances' array")
    are_objects = isinstance(instances[0], dict) and not is_b64_object(instances[0])
    if not are_objects and len(signature.inputs) > 1:
        raise invalid(
            "instances is a plain list, but expecting list of objects as multiple input "
            "tensors required as per tensorinfo_map"
        )
    names = signature.inputs.keys()
    listed = _columns(instances, names) if are_objects else dict.fromkeys(names, instances)
    arrays = {}
    for name, values in listed.items():
        array = _even(values, signature.inputs[name].dtype, limits)
        if array is None:
            break
        arrays[name] = array
    return arrays if arrays.keys() == names else _rows_by_element(instances, signature, limits)


def _columns(instances: list[Any], names: Set[str]) -> dict[str, list[Any]]:
    """Returns the values of each input. Empty unless each instance has exactly these inputs."""
    if set(map(type, instances)) != {dict} or set(map(len, instances)) != {len(names)}:
        return {}
    if names == {"b64"}:
        # Such an object may also be a single element of bytes.
        return {}
    try:
        return {name: list(map(itemgetter(name), instances)) for name in names}
    except KeyError:
        return {}


def _even(value: Any, dtype: DType, limits: Limits) -> Array | None:
    """Converts a scalar or evenly nested lists of one type; None for any other value."""
    shape = dense_shape(value)
    if len(shape) > limits.max_rank:
        limits.check_rank(len(shape))
    flat = [value]
    for size in shape:
        if set(map(type, flat)) != {list} or set(map(len, flat)) != {size}:
            return None
        flat = list(itertools.chain.from_iterable(flat))
    if not flat or not set(map(type, flat)) <= _TYPES[dtype.kind]:
        return None
    if dtype.kind is Kind.STRING:
        return bytes_array([text.encode() for text in flat], shape)
    try:
        return numeric_array(flat, dtype).reshape(shape)
    except OverflowError:
        return None


def _rows_by_element(
    instances: list[Any], signature: SignatureSpec, limits: Limits
) -> dict[str, Array]:
    columns = {name: _Column(spec, limits) for name, spec in signature.inputs.items()}
    if _is_object(instances[0]):
        for index, instance in enumerate(instances):
            _add_object(index, instance, columns)
    else:
        (column,) = columns.values()
        for index, instance in enumerate(instances):
            if _is_object(instance):
                raise invalid(f"Expecting value/list but got object at item {index} of input list")
            try:
                column.add(instance)
            except ServingError as error:
                raise _element_error(index, "", error) from None
    return {name: column.array() for name, column in columns.items()}


def decode_columns(
    document: Mapping[str, Any], signature: SignatureSpec, limits: Limits
) -> dict[str, Array]:
    """Reads `document["inputs"]`; arguments, result and errors as for `decode_rows`."""
    inputs = document["inputs"]
    if not _is_object(inputs):
        if len(signature.inputs) > 1:
            raise invalid(
                "inputs is a plain value/list, but expecting an object as multiple input "
                "tensors required as per tensorinfo_map"
            )
        (spec,) = signature.inputs.values()
        return {spec.name: decode_value(inputs, spec.dtype, limits)}
    arrays = {}
    for name, spec in sorted(signature.inputs.items()):
        if name not in inputs:
            raise invalid(f"Missing named input: {name} in 'inputs' object.")
        arrays[name] = decode_value(inputs[name], spec.dtype, limits)
    return {name: arrays[name] for name in signature.inputs}


def decode_value(value: Any, dtype: DType, limits: Limits) -> Array:
    """Reads one parsed JSON value as a tensor of `dtype`.

    Raises:
        ServingError: INVALID_ARGUMENT for a value that does not fit, UNIMPLEMENTED for an element
            type that JSON cannot express.
    """
    array = _even(value, dtype, limits)
    if array is None:
        shape = dense_shape(value)
        flat: list[Any] = []
        _fill(value, 0, dtype, shape, flat)
        array = _array(flat, dtype, shape)
    return array


def dense_shape(value: Any) -> tuple[int, ...]:
    """Returns the shape of nested lists. Looks only at the first element of each level."""
    shape = []
    while isinstance(value, list):
        shape.append(len(value))
        if not value:
            break
        value = value[0]
    return tuple(shape)


class _Column:
    """Collects the values of one input, instance after instance."""

    def __init__(self, spec: TensorSpec, limits: Limits) -> None:
        self._spec = spec
        self._limits = limits
        self._count = 0
        self._shape: tuple[int, ...] = ()
        self._flat: list[Any] = []

    def add(self, item: Any) -> None:
        shape = dense_shape(item)
        self._limits.check_rank(len(shape) + 1)
        before = len(self._flat)
        _fill(item, 0, self._spec.dtype, shape, self._flat)
        if not self._count:
            self._shape = shape
            self._size = len(self._flat)
        elif len(self._flat) - before != self._size:
            raise invalid(
                f"Expecting tensor size: {self._size} but got: {len(self._flat) - before}"
            )
        elif shape != self._shape:
            raise invalid(
                f"Expecting shape {format_shape(self._shape)} but got: {format_shape(shape)}"
            )
        self._count += 1

    def array(self) -> Array:
        return _array(self._flat, self._spec.dtype, (self._count, *self._shape))


def _add_object(index: int, instance: Any, columns: Mapping[str, _Column]) -> None:
    if not _is_object(instance):
        raise invalid(f"Expecting object but got list at item {index} of input list")
    for key, value in instance.items():
        try:
            if key not in columns:
                raise invalid(f"JSON object: does not have named input: {key}")
            columns[key].add(value)
        except ServingError as error:
            raise _element_error(index, f" key: {key}", error) from None
    if instance.keys() != columns.keys():
        raise invalid(
            f"Failed to process element: {index} of 'instances' list. JSON object: "
            f"{debug_string(instance)} keys must be equal to: {','.join(sorted(columns))}"
        )


def _element_error(index: int, key: str, error: ServingError) -> ServingError:
    return invalid(
        f"Failed to process element: {index}{key} of 'instances' list. "
        f"Error: {error.code.value}: {error.message}"
    )


def _is_object(value: Any) -> bool:
    return isinstance(value, dict) and not is_b64_object(value)


def _fill(value: Any, level: int, dtype: DType, shape: tuple[int, ...], flat: list[Any]) -> None:
    if not isinstance(value, list):
        if level != len(shape):
            raise invalid(
                f"JSON Value: {debug_string(value)} found at incorrect level: {level + 1} "
                f"in the JSON DOM. Expected at level: {len(shape)}"
            )
        flat.append(_element(value, dtype))
        return
    if level >= len(shape):
        raise invalid(f"Encountered list at unexpected level: {level} expected < {len(shape)}")
    if len(value) != shape[level]:
        raise invalid(
            f"Encountered list at unexpected size: {len(value)} at level: {level} "
            f"expected size: {shape[level]}"
        )
    for item in value:
        _fill(item, level + 1, dtype, shape, flat)


def _element(value: Any, dtype: DType) -> Any:
    """Returns a JSON scalar as the Python value of its element type."""
    if dtype.kind is Kind.STRING:
        if isinstance(value, dict):
            if not is_b64_object(value):
                raise invalid(
                    f"JSON Value: {debug_string(value)} not formatted correctly for base64 data"
                )
            return decode_b64(value["b64"])
        if isinstance(value, str):
            return value.encode()
    elif dtype.kind is Kind.FLOAT:
        if isinstance(value, int | float) and not isinstance(value, bool):
            return float(value)
    elif dtype.kind is Kind.BOOL:
        if isinstance(value, bool):
            return value
    elif dtype.kind is Kind.OTHER:
        raise ServingError(
            Code.UNIMPLEMENTED,
            f"Conversion of JSON Value: {debug_string(value)} to type: {dtype.name}",
        )
    elif isinstance(value, int) and not isinstance(value, bool) and value in dtype.integers:
        return value
    raise invalid(
        f"JSON Value: {debug_string(value)} Type: {type_name(value)} "
        f"is not of expected type: {dtype.name}"
    )


def _array(flat: list[Any], dtype: DType, shape: tuple[int, ...]) -> Array:
    if dtype.kind is Kind.STRING:
        return bytes_array(flat, shape)
    if dtype.kind is Kind.OTHER:
        raise ServingError(Code.UNIMPLEMENTED, f"Conversion of JSON to type: {dtype.name}")
    return numeric_array(flat, dtype).reshape(shape)
