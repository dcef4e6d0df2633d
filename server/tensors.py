"""Descriptions of tensors: element types, input and output specs, signatures.

Engines and wire formats share these descriptions without importing TensorFlow. An element type has
TensorFlow's name. Its values are in numpy arrays; strings are in object arrays of `bytes`.
"""

import dataclasses
import enum
import functools
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Tensors = Mapping[str, Array]

DEFAULT_SIGNATURE = "serving_default"
# The signature `de_lookup/T` looks up ids in a table T.
LOOKUP_PREFIX = "de_lookup/"
# This signature describes all tables.
STATS_SIGNATURE = "de_stats"
# Numbers in bytes are read this many times faster than bytes of JSON; strings are not. Writing one
# string takes as long as decoding this many bytes of JSON.
BINARY_WORK = 4
_COPY_WORK = 64


class Kind(enum.Enum):
    """The JSON form of an element type."""

    INT = "int"
    UINT64 = "uint64"
    FLOAT = "float"
    BOOL = "bool"
    STRING = "string"
    OTHER = "other"


@dataclasses.dataclass(frozen=True)
class DType:
    """An element type.

    Attributes:
        name: TensorFlow's short name, e.g. `float` or `int64`, as its messages write it.
        number: The value in TensorFlow's `DataType` enumeration.
        kind: The JSON form.
        numpy_name: The numpy type that carries it; empty if the gateway does not support it.
    """

    name: str
    number: int
    kind: Kind
    numpy_name: str = ""

    @property
    def enum_name(self) -> str:
        """The name in the `DataType` enumeration, e.g. `DT_INT64`."""
        return f"DT_{self.name.upper()}"

    @property
    def array_name(self) -> str:
        """The name with the width, e.g. `float32` where `name` is `float`."""
        return self.name if self.numpy_name in ("", "O") else self.numpy_name

    @property
    def carrier(self) -> str:
        """The name of the numpy type of its arrays; empty if the gateway does not support it."""
        return "object" if self.numpy_name == "O" else self.numpy_name

    @functools.cached_property
    def numpy(self) -> np.dtype[Any]:
        """The numpy type of arrays of this element type."""
        if self.name == "bfloat16":
            # numpy itself has no bfloat16; ml_dtypes comes with TensorFlow.
            import ml_dtypes

            bfloat16: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
            return bfloat16
        return np.dtype(self.numpy_name or "O")


_ALL = (
    DType("float", 1, Kind.FLOAT, "float32"),
    DType("double", 2, Kind.FLOAT, "float64"),
    DType("int32", 3, Kind.INT, "int32"),
    DType("uint8", 4, Kind.INT, "uint8"),
    DType("int16", 5, Kind.INT, "int16"),
    DType("int8", 6, Kind.INT, "int8"),
    DType("string", 7, Kind.STRING, "O"),
    DType("complex64", 8, Kind.OTHER, "complex64"),
    DType("int64", 9, Kind.INT, "int64"),
    DType("bool", 10, Kind.BOOL, "bool"),
    DType("qint8", 11, Kind.OTHER),
    DType("quint8", 12, Kind.OTHER),
    DType("qint32", 13, Kind.OTHER),
    DType("bfloat16", 14, Kind.FLOAT, "bfloat16"),
    DType("qint16", 15, Kind.OTHER),
    DType("quint16", 16, Kind.OTHER),
    DType("uint16", 17, Kind.INT, "uint16"),
    DType("complex128", 18, Kind.OTHER, "complex128"),
    DType("half", 19, Kind.FLOAT, "float16"),
    DType("resource", 20, Kind.OTHER),
    DType("variant", 21, Kind.OTHER),
    DType("uint32", 22, Kind.INT, "uint32"),
    DType("uint64", 23, Kind.UINT64, "uint64"),
)
INVALID_DTYPE = DType("invalid", 0, Kind.OTHER)
_BY_NAME = {dtype.name: dtype for dtype in _ALL}
_BY_NUMBER = {dtype.number: dtype for dtype in _ALL}


def dtype_of_name(name: str) -> DType:
    """Returns the element type with TensorFlow's name `name`, e.g. `int64` or `DT_INT64`."""
    return _BY_NAME[name.lower().removeprefix("dt_")]


def dtype_of_number(number: int) -> DType:
    """Returns the element type numbered `number` in `DataType`; `invalid` if there is none."""
    return _BY_NUMBER.get(number, INVALID_DTYPE)


@dataclasses.dataclass(frozen=True)
class TensorSpec:
    """One input or output of a signature.

    Attributes:
        name: The key in the signature. JSON uses the same name.
        dtype: Element type.
        shape: Sizes, None for any size; None instead of the tuple for an unknown rank.
        tensor_name: The tensor's name in the graph, as in the metadata.
    """

    name: str
    dtype: DType
    shape: tuple[int | None, ...] | None
    tensor_name: str = ""

    def accepts(self, shape: tuple[int, ...]) -> bool:
        """Returns whether a tensor of `shape` matches the declared shape."""
        if self.shape is None:
            return True
        return len(self.shape) == len(shape) and all(
            want is None or want == got for want, got in zip(self.shape, shape, strict=True)
        )


@dataclasses.dataclass(frozen=True)
class SignatureSpec:
    """A function that a model offers, with its name, inputs and outputs."""

    name: str
    inputs: Mapping[str, TensorSpec]
    outputs: Mapping[str, TensorSpec]
    method_name: str = "tensorflow/serving/predict"

    @functools.cached_property
    def row_fields(self) -> tuple[tuple[str, Kind, int | None], ...]:
        """Name, kind and rank within a row, for each input. A row decoder depends only on these."""
        return tuple(
            (
                name,
                spec.dtype.kind,
                len(spec.shape) - 1 if spec.shape else None,
            )
            for name, spec in sorted(self.inputs.items())
        )

    @functools.cached_property
    def is_table(self) -> bool:
        """Whether it looks up ids: it takes `ids`, and gives `embeddings` and `found`."""
        return (
            self.name.startswith(LOOKUP_PREFIX)
            and "ids" in self.inputs
            and {"embeddings", "found"} <= self.outputs.keys()
        )


@dataclasses.dataclass
class Feature:
    """One feature of an example.

    Attributes:
        kind: `bytes`, `float` or `int64`; empty if there are no values.
        values: The values, all of this kind.
    """

    kind: str = ""
    values: list[Any] = dataclasses.field(default_factory=list)


Example = Mapping[str, Feature]


def written_work(tensors: Tensors) -> int:
    """Returns the cost of writing tensors as bytes, as the bytes of JSON that take as long."""
    return sum(
        array.size * BINARY_WORK if array.dtype.kind == "O" else array.nbytes // _COPY_WORK
        for array in tensors.values()
    )


def format_shape(shape: tuple[int | None, ...] | tuple[int, ...] | None) -> str:
    """Writes a shape as TensorFlow Serving's messages do, e.g. `[-1,4]`."""
    if shape is None:
        return "[?]"
    return "[" + ",".join("-1" if size is None else str(size) for size in shape) + "]"
