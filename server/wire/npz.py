"""NumPy's `.npz`: tensors by name, as bytes. Read without trusting a byte of it.

An archive says how large it becomes, and each array how many elements it has: both are held
to the limits, and to each other, before memory is spent. Objects (pickles) are refused.
"""

import ast
import io
import zipfile
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from server.errors import ServingError, invalid
from server.tensors import Array, DType, Kind, SignatureSpec
from server.wire.limits import Limits
from server.wire.strings import bytes_array

_MAGIC = b"\x93NUMPY"
# The size of the header's length, by version of the format.
_LENGTH_BYTES = {1: 2, 2: 4}
_MAX_HEADER = 4096
_MAX_ARRAYS = 1024
_MEMBER_ERRORS = (
    zipfile.BadZipFile,
    zlib.error,
    ValueError,
    KeyError,
    EOFError,
    OSError,
    NotImplementedError,
    RuntimeError,
    MemoryError,
    RecursionError,
    SyntaxError,
    TypeError,
    OverflowError,
)


def decode_npz(body: bytes, limits: Limits) -> dict[str, Array]:
    """Reads an archive of arrays.

    Args:
        body: The `.npz`; its members may be compressed.
        limits: Bounds on rank, elements and bytes.

    Raises:
        ServingError: INVALID_ARGUMENT for what is not an archive of plain arrays, or is
            beyond a limit.

    Example:
        >>> decode_npz(encode_npz({"ids": np.arange(3)}), Limits())
        {'ids': array([0, 1, 2])}
    """
    try:
        with zipfile.ZipFile(io.BytesIO(body)) as archive:
            members = archive.infolist()
            if len(members) > _MAX_ARRAYS:
                raise invalid(f"A .npz must hold at most {_MAX_ARRAYS} arrays")
            if sum(member.file_size for member in members) > limits.max_bytes:
                raise invalid(
                    f"A .npz must hold at most {limits.max_bytes} bytes: send it in parts."
                )
            arrays: dict[str, Array] = {}
            elements = 0
            for member in members:
                array = _read_member(archive, member, limits)
                elements += array.size
                if elements > limits.max_elements:
                    raise invalid(
                        f"A request must hold at most {limits.max_elements} values: "
                        "send it in parts."
                    )
                arrays[member.filename.removesuffix(".npy")] = array
            return arrays
    except ServingError:
        raise
    except _MEMBER_ERRORS as error:
        raise invalid(
            "The body must be a .npz, as Content-Type says: numpy.savez writes one. "
            f"Received: {str(error)[:128]}"
        ) from None


def _read_member(archive: zipfile.ZipFile, member: zipfile.ZipInfo, limits: Limits) -> Array:
    with archive.open(member) as file:
        # One byte more than declared would be too many.
        content = file.read(member.file_size + 1)
    shape, fortran, dtype, start = _header(content)
    limits.check_rank(len(shape))
    if dtype.hasobject or dtype.kind not in "biufSUV" or dtype.names or dtype.subdtype:
        raise ValueError(f"elements of type {dtype} are refused")
    count = 1
    for size in shape:
        count *= size
    data = content[start:]
    if count < 0 or not dtype.itemsize or len(data) != count * dtype.itemsize:
        raise ValueError(f"an array of shape {shape} does not have {len(data)} bytes")
    return np.frombuffer(data, dtype).reshape(shape, order="F" if fortran else "C")


def _header(content: bytes) -> tuple[tuple[int, ...], bool, np.dtype[Any], int]:
    """Returns shape, whether columns come first, element type, and where the values begin.

    numpy's own reader is not used: what it raises for damaged headers is not documented.
    """
    size_bytes = _LENGTH_BYTES.get(content[6]) if len(content) > 6 else None
    if content[:6] != _MAGIC or size_bytes is None:
        raise ValueError("a member is no array")
    start = 8 + size_bytes
    size = int.from_bytes(content[8:start], "little")
    if size > min(_MAX_HEADER, len(content) - start):
        raise ValueError("the header of an array is too long")
    header = ast.literal_eval(content[start : start + size].decode("latin-1").strip())
    shape = header["shape"]
    if not isinstance(shape, tuple) or not all(type(each) is int for each in shape):
        raise ValueError("a shape is none")
    if not isinstance(header["descr"], str):
        raise ValueError("elements of several fields are refused")
    return shape, bool(header["fortran_order"]), np.dtype(header["descr"]), start + size


def encode_npz(arrays: Mapping[str, Array]) -> bytes:
    """Writes arrays as an uncompressed `.npz`; strings as fixed-width bytes.

    Raises:
        ServingError: INVALID_ARGUMENT for a string that ends in a zero byte, which NumPy drops.
    """
    stream = io.BytesIO()
    savable: dict[str, Any] = {name: _savable(name, array) for name, array in arrays.items()}
    np.savez(stream, **savable)
    return stream.getvalue()


def as_dtype(name: str, array: Array, dtype: DType) -> Array:
    """Returns an array as a tensor of an element type that holds all its values exactly.

    Raises:
        ServingError: INVALID_ARGUMENT if it cannot be.
    """
    if dtype.kind is Kind.STRING and array.dtype.kind in "SU":
        flat = array.reshape(-1)
        values = flat.tolist()
        strings = [v.encode() if isinstance(v, str) else v for v in values]
        return bytes_array(strings, array.shape)
    if dtype.kind not in (Kind.STRING, Kind.OTHER):
        wanted = dtype.numpy
        if dtype.name == "bfloat16" and array.dtype.kind == "V" and array.dtype.itemsize == 2:
            return array.view(wanted)
        if array.dtype.kind in "iu" and dtype.kind in (Kind.INT, Kind.UINT64):
            info = np.iinfo(wanted)
            inside = not array.size or (
                int(array.min()) >= info.min and int(array.max()) <= info.max
            )
            if inside:
                return np.ascontiguousarray(array, wanted)
        if array.dtype.kind == "b" and dtype.kind is Kind.BOOL:
            return np.ascontiguousarray(array)
        if array.dtype.kind in "iuf" and dtype.kind is Kind.FLOAT:
            with np.errstate(over="ignore", under="ignore"):
                return np.ascontiguousarray(array.astype(wanted))
    raise invalid(
        f"The array {name} must hold values of type {dtype.array_name}. "
        f"Received: dtype={array.dtype}"
    )


def decode_predict_npz(body: bytes, signature: SignatureSpec, limits: Limits) -> dict[str, Array]:
    """Reads the inputs of a signature from a `.npz` that has an array for each.

    Raises:
        ServingError: INVALID_ARGUMENT, naming the array.
    """
    arrays = decode_npz(body, limits)
    if arrays.keys() != signature.inputs.keys():
        raise invalid(
            f"The .npz must hold the arrays {', '.join(sorted(signature.inputs))}. "
            f"Received: {', '.join(sorted(arrays))[:128]}"
        )
    return {
        name: as_dtype(name, arrays[name], spec.dtype) for name, spec in signature.inputs.items()
    }


def _savable(name: str, array: Array) -> Any:
    if array.dtype.kind == "O":
        if any(value.endswith(b"\0") for value in array.flat):
            raise invalid(
                "A .npz holds no strings that end in a zero byte: ask for JSON instead "
                f"(Accept: application/json). Received: output={name}"
            )
        return array.astype(np.bytes_) if array.size else np.empty(array.shape, "S1")
    if array.dtype.name == "bfloat16":
        return array.astype(np.float32)
    return array
