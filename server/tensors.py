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
# Method names of signatures on examples.
CLASSIFY_METHOD = "tensorflow/serving/classify"
REGRESS_METHOD = "tensorflow/serving/regress"
# Numbers in bytes are read this many times faster than bytes of JSON; strings are not. Writing one
# string takes as long as decoding this many bytes of JSON.
BINARY_WORK = 4
# TensorFlow Serving's messages: numbers are read this many times faster, examples this many times
# more slowly.
TENSOR_WORK = 8
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
        field: The field of a TensorProto that holds its values.
        datatype: The Open Inference Protocol's name, e.g. `INT64`; empty if it has none.
        contents: The field of the protocol's InferTensorContents; empty if values must be bytes.
    """

    name: str
    number: int
    kind: Kind
    numpy_name: str = ""
    field: str = ""
    datatype: str = ""
    contents: str = ""

    @property
    def enum_name(self) -> str:
        """The name in the `DataType` enumeration, e.g. `DT_INT64`."""
        return f"DT_{self.name.upper()}"

    @property
    def array_name(self) -> str:
        """The name with the width, e.g. `float32` where `name` is `float`."""
        return self.name if self.numpy_name in ("", "O") else self.numpy_name

    @functools.cached_property
    def integers(self) -> range:
        """All values of an integer type."""
        info = np.iinfo(self.numpy)
        return range(int(info.min), int(info.max) + 1)

    @functools.cached_property
    def numpy(self) -> np.dtype[Any]:
        """The numpy type of arrays of this element type."""
        if self.name == "bfloat16":
            # numpy itself has no bfloat16.
            import ml_dtypes

            bfloat16: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
            return bfloat16
        return np.dtype(self.numpy_name or "O")


# The server's only list of element types. Decoders and encoders of all protocols derive from it.
DTYPES = (
    DType("float", 1, Kind.FLOAT, "float32", "float_val", "FP32", "fp32_contents"),
    DType("double", 2, Kind.FLOAT, "float64", "double_val", "FP64", "fp64_contents"),
    DType("int32", 3, Kind.INT, "int32", "int_val", "INT32", "int_contents"),
    DType("uint8", 4, Kind.INT, "uint8", "int_val", "UINT8", "uint_contents"),
    DType("int16", 5, Kind.INT, "int16", "int_val", "INT16", "int_contents"),
    DType("int8", 6, Kind.INT, "int8", "int_val", "INT8", "int_contents"),
    DType("string", 7, Kind.STRING, "O", "string_val", "BYTES", "bytes_contents"),
    DType("complex64", 8, Kind.OTHER, "complex64", "scomplex_val"),
    DType("int64", 9, Kind.INT, "int64", "int64_val", "INT64", "int64_contents"),
    DType("bool", 10, Kind.BOOL, "bool", "bool_val", "BOOL", "bool_contents"),
    DType("qint8", 11, Kind.OTHER),
    DType("quint8", 12, Kind.OTHER),
    DType("qint32", 13, Kind.OTHER),
    DType("bfloat16", 14, Kind.FLOAT, "bfloat16", "half_val", "BF16"),
    DType("qint16", 15, Kind.OTHER),
    DType("quint16", 16, Kind.OTHER),
    DType("uint16", 17, Kind.INT, "uint16", "int_val", "UINT16", "uint_contents"),
    DType("complex128", 18, Kind.OTHER, "complex128", "dcomplex_val"),
    DType("half", 19, Kind.FLOAT, "float16", "half_val", "FP16"),
    DType("resource", 20, Kind.OTHER),
    DType("variant", 21, Kind.OTHER),
    DType("uint32", 22, Kind.INT, "uint32", "uint32_val", "UINT32", "uint_contents"),
    DType("uint64", 23, Kind.UINT64, "uint64", "uint64_val", "UINT64", "uint64_contents"),
)
INVALID_DTYPE = DType("invalid", 0, Kind.OTHER)
_BY_NAME = {dtype.name: dtype for dtype in DTYPES}
_BY_NUMBER = {dtype.number: dtype for dtype in DTYPES}
_BY_CARRIER = {dtype.numpy_name.replace("O", "object"): dtype for dtype in DTYPES}


def dtype_of_name(name: str) -> DType:
    """Returns the element type with TensorFlow's name `name`, e.g. `int64` or `DT_INT64`."""
    return _BY_NAME[name.lower().removeprefix("dt_")]


def dtype_of_number(number: int) -> DType:
    """Returns the element type numbered `number` in `DataType`; `invalid` if there is none."""
    return _BY_NUMBER.get(number, INVALID_DTYPE)


@functools.lru_cache(maxsize=64)
def dtype_of_numpy(carrier: np.dtype[Any]) -> DType:
    """Returns the element type of arrays of a numpy type; `invalid` if there is none.

    The result is cached, because numpy takes long to compute a type's name.
    """
    return _BY_CARRIER.get(carrier.name, INVALID_DTYPE)


@dataclasses.dataclass(frozen=True)
class TensorSpec:
    """One input or output of a signature.

    Attributes:
        name: The key in the signature. JSON uses the same name.
        dtype: Element type.
        shape: Sizes, None for any size; None instead of the tuple for an unknown rank.
        tensor_name: The tensor's name in the graph, as in the metadata. Two specs are equal
            whatever it is.
    """

    name: str
    dtype: DType
    shape: tuple[int | None, ...] | None
    tensor_name: str = dataclasses.field(default="", compare=False)

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
    def is_table(self) -> bool:
        """Whether it looks up ids: it takes `ids` alone, and gives `embeddings` and `found`."""
        return (
            self.name.startswith(LOOKUP_PREFIX)
            and self.inputs.keys() == {"ids"}
            and self.inputs["ids"].dtype.kind in (Kind.INT, Kind.STRING)
            and {"embeddings", "found"} <= self.outputs.keys()
            and len(self.outputs["embeddings"].shape or (0, 0)) == 2
        )


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
