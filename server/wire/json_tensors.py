"""Reads tensors from parsed JSON by TensorFlow Serving's rules, with its messages; and back.

Evenly nested lists of one type are converted in few calls. All other values are read element by
element: that finds the wrong element for the message, or reads a value of an unusual form.

`json_ready` converts a tensor to a value that `orjson.dumps(…, option=OPT_SERIALIZE_NUMPY)` can
write. orjson writes numeric arrays directly: floats with the fewest digits that read back as the
same number, whole floats with `.0`. `json_ready` handles the rest: NaN and infinities, 64-bit
integers as strings, string tensors, bfloat16.
"""

import base64
import itertools
import math
import re
from array import array as c_array
from array import typecodes
from collections.abc import Mapping, Sequence, Set
from operator import itemgetter
from typing import Any

import numpy as np
import orjson

from ..errors import ServingError, invalid, unimplemented
from ..limits import Limits
from ..tensors import Array, DType, Kind, SignatureSpec, format_shape
from .json_text import debug_string, type_name, wrong_value
from .tensor_bytes import bytes_array, decode_b64, is_b64_object

# The types of parsed JSON values that are elements of each kind, whatever their value.
_TYPES: dict[Kind, set[type]] = {
    Kind.INT: {int},
    Kind.UINT64: {int},
    Kind.FLOAT: {int, float},
    Kind.BOOL: {bool},
    Kind.STRING: {str},
    Kind.OTHER: set(),
}
_NULL = re.compile(rb"null")
_WORDS = {"nan": b"NaN", "inf": b"Infinity", "-inf": b"-Infinity"}


def numeric_array(values: Sequence[Any], dtype: DType) -> Array:
    """Converts Python numbers to a vector.

    The values must already have the right Python type (`int` for integers, `int` or `float` for
    floats, `bool` for booleans), because numpy would silently convert 1.5, True and "1" to
    integers.

    Raises:
        OverflowError: A number does not fit the element type.
    """
    # Numbers beyond the range of a float type become infinities, and tiny ones become zero.
    if dtype.numpy.char in typecodes:
        return np.frombuffer(c_array(dtype.numpy.char, values), dtype.numpy)
    if dtype.kind is Kind.FLOAT:
        with np.errstate(over="ignore", under="ignore"):
            return np.asarray(values, np.float64).astype(dtype.numpy)
    return np.asarray(values, dtype.numpy)


def decode_rows(
    document: Mapping[str, Any], signature: SignatureSpec, limits: Limits
) -> dict[str, Array]:
    """Reads `document["instances"]`.

    Returns:
        One array per input; the first dimension counts instances.

    Raises:
        ServingError: INVALID_ARGUMENT, naming the element and the input.
    """
    instances = document["instances"]
    if not isinstance(instances, list):
        raise wrong_value(document, "Expecting 'instances' to be an list/array")
    if not instances:
        raise wrong_value(document, "No values in 'instances' array")
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
    # The first level is a list of `shape[0]` values.
    flat = value if shape else [value]
    for size in shape[1:]:
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
    specs = signature.inputs
    flats: dict[str, list[Any]] = {name: [] for name in specs}
    shapes: dict[str, tuple[int, ...]] = {}
    are_objects = _is_object(instances[0])
    for index, instance in enumerate(instances):
        if _is_object(instance) != are_objects:
            wanted, got = ("object", "list") if are_objects else ("value/list", "object")
            raise invalid(f"Expecting {wanted} but got {got} at item {index} of input list")
        for name, value in (instance if are_objects else dict.fromkeys(specs, instance)).items():
            try:
                if name not in specs:
                    raise invalid(f"JSON object: does not have named input: {name}")
                shape = dense_shape(value)
                limits.check_rank(len(shape) + 1)
                _fill(value, 0, specs[name].dtype, shape, flats[name])
                first = shapes.setdefault(name, shape)
                if math.prod(shape) != (size := math.prod(first)):
                    raise invalid(f"Expecting tensor size: {size} but got: {math.prod(shape)}")
                if shape != first:
                    told = f"{format_shape(first)} but got: {format_shape(shape)}"
                    raise invalid(f"Expecting shape {told}")
            except ServingError as error:
                key = f" key: {name}" if are_objects else ""
                raise invalid(
                    f"Failed to process element: {index}{key} of 'instances' list. "
                    f"Error: {error.code.value}: {error.message}"
                ) from None
        if are_objects and instance.keys() != specs.keys():
            raise invalid(
                f"Failed to process element: {index} of 'instances' list. JSON object: "
                f"{debug_string(instance)} keys must be equal to: {','.join(sorted(specs))}"
            )
    return {
        name: _array(flat, specs[name].dtype, (len(instances), *shapes[name]))
        for name, flat in flats.items()
    }


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


def _is_object(value: Any) -> bool:
    return isinstance(value, dict) and not is_b64_object(value)


def _fill(value: Any, level: int, dtype: DType, shape: tuple[int, ...], flat: list[Any]) -> None:
    if not isinstance(value, list):
        if level != len(shape):
            told = f"{level + 1} in the JSON DOM. Expected at level: {len(shape)}"
            raise wrong_value(value, f"found at incorrect level: {told}")
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
                raise wrong_value(value, "not formatted correctly for base64 data")
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
        raise unimplemented(
            f"Conversion of JSON Value: {debug_string(value)} to type: {dtype.name}"
        )
    elif isinstance(value, int) and not isinstance(value, bool) and value in dtype.integers:
        return value
    raise wrong_value(value, f"Type: {type_name(value)} is not of expected type: {dtype.name}")


def _array(flat: list[Any], dtype: DType, shape: tuple[int, ...]) -> Array:
    if dtype.kind is Kind.STRING:
        return bytes_array(flat, shape)
    if dtype.kind is Kind.OTHER:
        raise unimplemented(f"Conversion of JSON to type: {dtype.name}")
    return numeric_array(flat, dtype).reshape(shape)


def json_ready(name: str, array: Array, *, int64_as_string: bool = False) -> Any:
    """Converts a tensor to the form that orjson writes as TensorFlow Serving does.

    A string tensor whose name ends in `_bytes` becomes base64 objects. With `int64_as_string`,
    64-bit integers become strings. The tensor may have any shape.

    Raises:
        ServingError: INVALID_ARGUMENT for an element type that JSON cannot express.
    """
    kind = array.dtype.kind
    # Compare the kind first, because numpy takes long to compute a type's name.
    if kind == "V" and array.dtype.name == "bfloat16":
        array, kind = array.astype(np.float32), "f"
    if kind in "OSU":
        written = np.empty(array.size, object)
        written[:] = [_string(each, name.endswith("_bytes")) for each in array.ravel().tolist()]
        return written.reshape(array.shape).tolist()
    if kind in "iu" and int64_as_string and array.dtype.itemsize == 8:
        return array.astype(str).tolist()
    if kind not in "fiub":
        raise invalid(f"Failed to write JSON value for tensor type: {array.dtype.name}")
    # orjson writes C-contiguous arrays and scalars, but no arrays of rank 0.
    plain = np.ascontiguousarray(array) if array.ndim else array[()]
    if kind != "f":
        return plain
    finite = np.isfinite(plain)
    if 0 not in finite.tobytes():  # `finite.all()` takes several times as long for few values
        return plain
    # orjson writes null for NaN and infinities. An array of floats gives no other nulls, so each
    # null in the text stands for one of these values.
    words = iter([_WORDS[str(value)] for value in np.asarray(plain)[~finite].tolist()])
    text = orjson.dumps(plain, option=orjson.OPT_SERIALIZE_NUMPY)
    return orjson.Fragment(_NULL.sub(lambda _: next(words), text))


def _string(value: bytes | str, as_bytes: bool) -> Any:
    raw = value.encode() if isinstance(value, str) else value
    if not as_bytes:
        try:
            return raw.decode()
        except UnicodeDecodeError:
            # JSON text is UTF-8, so other bytes need base64.
            pass
    return {"b64": base64.b64encode(raw).decode()}
