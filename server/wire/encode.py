"""Converts tensors to values that `orjson.dumps(…, option=OPT_SERIALIZE_NUMPY)` can write.

orjson writes numeric arrays directly: floats with the fewest digits that read back as the same
number, whole floats with `.0`. This module handles the rest: NaN and infinities, 64-bit integers as
strings, string tensors, bfloat16.
"""

import base64
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson

from ..errors import invalid
from ..tensors import Array

_NULL = re.compile(rb"null")


def json_ready(name: str, array: Array, *, int64_as_string: bool = False) -> Any:
    """Converts a tensor to the form that orjson writes as TensorFlow Serving does.

    Args:
        name: The tensor's name. A string tensor whose name ends in `_bytes` becomes base64 objects.
        array: The tensor, of any shape.
        int64_as_string: True to write 64-bit integers as strings.

    Raises:
        ServingError: INVALID_ARGUMENT for an element type that JSON cannot express.
    """
    kind = array.dtype.kind
    # Compare the kind first, because numpy takes long to compute a type's name.
    if kind == "V" and array.dtype.name == "bfloat16":
        array, kind = array.astype(np.float32), "f"
    if kind in "OSU":
        return _strings(array, as_bytes=name.endswith("_bytes"))
    if kind in "iu" and int64_as_string and array.dtype.itemsize == 8:
        return array.astype(str).tolist()
    if kind == "f":
        return float_json(array)
    if kind in "iub":
        return _plain(array)
    raise invalid(f"Failed to write JSON value for tensor type: {array.dtype.name}")


def json_rows(name: str, array: Array, *, int64_as_string: bool = False) -> Sequence[Any]:
    """Converts each row of a tensor of at least one dimension, as `json_ready` does."""
    ready = json_ready(name, array, int64_as_string=int64_as_string)
    if isinstance(ready, orjson.Fragment):
        return [json_ready(name, row) for row in array]
    # orjson also writes numpy's scalars, so rows of a vector need no conversion.
    return ready if isinstance(ready, list) else list(ready)


def float_json(values: npt.ArrayLike) -> Any:
    """Converts floats for orjson; NaN, Infinity and -Infinity become bare words."""
    array = _plain(np.asarray(values))
    if np.isfinite(array).all():
        return array
    # orjson writes null for NaN and infinities. An array of floats gives no other nulls, so each
    # null in the text stands for one of these values.
    words = iter(
        [_word(value) for value in np.atleast_1d(array)[~np.isfinite(np.atleast_1d(array))]]
    )
    text = orjson.dumps(array, option=orjson.OPT_SERIALIZE_NUMPY)
    return orjson.Fragment(_NULL.sub(lambda _: next(words), text))


def _plain(array: Array) -> Any:
    # orjson writes C-contiguous arrays and scalars, but no arrays of rank 0.
    return np.ascontiguousarray(array) if array.ndim else array[()]


def _word(value: float) -> bytes:
    if np.isnan(value):
        return b"NaN"
    return b"Infinity" if value > 0 else b"-Infinity"


def _strings(array: Array, *, as_bytes: bool) -> Any:
    flat = [each.encode() if isinstance(each, str) else each for each in array.ravel().tolist()]
    written = np.empty(len(flat), object)
    written[:] = [_string(each, as_bytes) for each in flat]
    return written.reshape(array.shape).tolist()


def _string(raw: bytes, as_bytes: bool) -> Any:
    if not as_bytes:
        try:
            return raw.decode()
        except UnicodeDecodeError:
            # JSON text is UTF-8, so other bytes need base64.
            pass
    return {"b64": base64.b64encode(raw).decode()}


def encode_classify(classes: Array | None, scores: Array | None) -> bytes:
    """Encodes classifications as lists of `[label, score]` pairs, one list per example.

    Args:
        classes: Labels as `bytes`, shape (examples, classes); None if the model has none.
        scores: Scores, same shape; None if the model has none.

    Raises:
        ServingError: INVALID_ARGUMENT if there is nothing to encode.
    """
    shape = classes.shape if classes is not None else scores.shape if scores is not None else (0,)
    if not shape[0]:
        raise invalid("Cannot convert empty ClassificationResults to JSON")
    results = [
        [
            [
                classes[i, j].decode(errors="replace") if classes is not None else "",
                float_json(scores[i, j]) if scores is not None else 0.0,
            ]
            for j in range(shape[1])
        ]
        for i in range(shape[0])
    ]
    return orjson.dumps({"results": results}, option=orjson.OPT_SERIALIZE_NUMPY)


def encode_regress(values: Array) -> bytes:
    """Encodes one value per example; `values` has shape (examples,)."""
    if not len(values):
        raise invalid("Cannot convert empty RegressionResults to JSON")
    return orjson.dumps({"results": float_json(values)}, option=orjson.OPT_SERIALIZE_NUMPY)
