"""Converts arrays to TensorProto messages and back, without TensorFlow."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from ..errors import invalid, unimplemented
from ..tensors import Array, DType, Kind, SignatureSpec, TensorSpec, dtype_of_number, dtype_of_numpy
from ..wire.tensor_bytes import bytes_array

_MAX_ELEMENTS = 1 << 30
# A small message can stand for a huge tensor, because TensorFlow repeats the last value until the
# shape is filled. Tensors with repeated values may have at most this many elements.
_MAX_REPEATED = 1 << 20

# For fewer floats than this, appending one by one is as fast.
_FEW = 64


def fill_typed(proto: Any, array: Array) -> None:
    """Writes an array into the typed field of an empty TensorProto, e.g. `float_val`.

    Clients of TensorFlow Serving read this field. Many floats are merged into the message as bytes:
    appending them one by one takes a hundred times as long.
    """
    dtype = dtype_of_numpy(array.dtype)
    if dtype.kind is Kind.STRING:
        fill_proto(proto, array)
        return
    _fill_head(proto, array, dtype)
    flat = np.ascontiguousarray(array).reshape(-1)
    if dtype.field == "half_val":
        flat = flat.view(np.uint16)
    elif dtype.kind is Kind.OTHER:
        flat = flat.view(f"f{dtype.numpy.itemsize // 2}")  # real and imaginary parts alternate
    if len(flat) < _FEW or flat.dtype.kind != "f":
        getattr(proto, dtype.field).extend(flat.tolist())
        return
    # Packed floats differ from the same bytes in `tensor_content` only in the number of the field.
    packed = type(proto)(tensor_content=flat.tobytes()).SerializeToString()
    number = proto.DESCRIPTOR.fields_by_name[dtype.field].number
    proto.MergeFromString(bytes([number << 3 | 2]) + packed[1:])


def fill_proto(proto: Any, array: Array) -> None:
    """Writes an array into an empty TensorProto; numbers become bytes in `tensor_content`."""
    dtype = dtype_of_numpy(array.dtype)
    _fill_head(proto, array, dtype)
    if dtype.kind is Kind.STRING:
        proto.string_val.extend(array.reshape(-1).tolist())
        return
    proto.tensor_content = array.tobytes()


def _fill_head(proto: Any, array: Array, dtype: DType) -> None:
    proto.dtype = dtype.number
    # Create the shape message even if it is empty: a scalar has a shape.
    proto.tensor_shape.SetInParent()
    for size in array.shape:
        proto.tensor_shape.dim.add().size = size


def to_array(proto: Any) -> Array:
    """Reads a TensorProto.

    Args:
        proto: The message. If values are missing, the last one repeats, as in TensorFlow.

    Raises:
        ServingError: INVALID_ARGUMENT for a message that is no tensor; UNIMPLEMENTED for an element
            type that the gateway does not support.
    """
    dtype = dtype_of_number(proto.dtype)
    field = dtype.field
    if not field:
        raise unimplemented(f"Tensors of type {dtype.enum_name} are not supported")
    shape = tuple(dim.size for dim in proto.tensor_shape.dim)
    if proto.tensor_shape.unknown_rank or len(shape) > 32:
        raise invalid("A tensor must have a shape of known rank, 32 at most")
    # numpy cannot reshape to sizes with a huge product, even if another size is 0.
    if min(shape, default=0) < 0 or math.prod(filter(None, shape)) > _MAX_ELEMENTS:
        raise invalid(
            f"A tensor must have a shape of known size, {_MAX_ELEMENTS} elements at most. "
            f"Received: {list(shape)}"
        )
    count = math.prod(shape)
    if content := proto.tensor_content:
        if dtype.kind is Kind.STRING or len(content) != count * dtype.numpy.itemsize:
            raise invalid(
                f"A tensor of type {dtype.enum_name} and shape {list(shape)} must not have "
                f"{len(content)} bytes of content"
            )
        return np.frombuffer(content, dtype.numpy).reshape(shape)
    values = getattr(proto, field)
    if dtype.kind is Kind.OTHER:
        # Real and imaginary parts alternate.
        part = f"f{dtype.numpy.itemsize // 2}"
        values = np.asarray(values[: len(values) // 2 * 2], part).view(dtype.numpy)
    if len(values) < count and count > _MAX_REPEATED:
        raise invalid(f"A tensor of {count} elements must not have only {len(values)} values")
    if len(values) > count:
        raise invalid(f"A tensor of {count} elements must not have {len(values)} values")
    if dtype.kind is Kind.STRING:
        strings = list(values)
        return bytes_array(
            strings + [strings[-1] if strings else b""] * (count - len(strings)), shape
        )
    stored = np.dtype(np.uint16) if field == "half_val" else dtype.numpy
    if field in ("half_val", "int_val"):  # both are wider than the element type
        sent = np.asarray(values, np.int32)
        flat = sent.astype(stored)
        if (sent != flat).any():
            raise invalid(
                f"A tensor of type {dtype.enum_name} must have values of {stored.name} in "
                f"{field}. Received: {sent[sent != flat][0]}"
            )
        flat = flat.view(dtype.numpy)
    else:
        flat = np.asarray(values, stored)
    if len(flat) < count:
        last = flat[-1:] if len(flat) else np.zeros(1, dtype.numpy)
        flat = np.concatenate([flat, np.repeat(last, count - len(flat))])
    return flat.reshape(shape)


def signatures_of(definitions: Mapping[str, Any]) -> list[SignatureSpec]:
    """Returns the signatures in SignatureDef messages, by name."""

    def specs(infos: Mapping[str, Any]) -> dict[str, TensorSpec]:
        found = {}
        for name, info in infos.items():
            sizes = tuple(None if dim.size < 0 else dim.size for dim in info.tensor_shape.dim)
            shape = None if info.tensor_shape.unknown_rank else sizes
            found[name] = TensorSpec(name, dtype_of_number(info.dtype), shape, info.name)
        return found

    return [
        SignatureSpec(name, specs(each.inputs), specs(each.outputs), each.method_name)
        for name, each in sorted(definitions.items())
    ]


def fill_signature(definition: Any, signature: SignatureSpec) -> None:
    """Writes a signature into an empty SignatureDef."""
    definition.method_name = signature.method_name
    for infos, specs in (
        (definition.inputs, signature.inputs),
        (definition.outputs, signature.outputs),
    ):
        for name, spec in specs.items():
            info = infos[name]
            if spec.tensor_name:
                info.name = spec.tensor_name
            info.dtype = spec.dtype.number
            if spec.shape is None:
                info.tensor_shape.unknown_rank = True
            else:
                # Create the shape message even if it is empty: a scalar has a shape.
                info.tensor_shape.SetInParent()
            for size in spec.shape or ():
                info.tensor_shape.dim.add().size = -1 if size is None else size
