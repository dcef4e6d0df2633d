"""Bodies of `:predict` requests and answers, and the answers of `:classify` and `:regress`."""

import dataclasses
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec
import numpy as np
import orjson

from ..errors import ServingError, invalid
from ..limits import Limits
from ..tensors import DEFAULT_SIGNATURE, Array, SignatureSpec, Tensors
from . import json_tensors
from .json_tensors import json_ready
from .json_text import debug_string, parse_json, wrong_value


class PredictRequest(NamedTuple):
    """A decoded request: a signature, its inputs, and the answer's key as for `encode_predict`."""

    signature: SignatureSpec
    key: str
    inputs: dict[str, Array]


# The input of signatures with shared inputs (`de.shared_signature`): the items of each user.
ROW_SPLITS = "row_splits"
# Python's parser is several times slower. It reads what msgspec refuses.
_DOCUMENT = msgspec.json.Decoder(dict[str, Any])
_LONG_NUMBER = re.compile(rb"\d{19}")  # msgspec reads more digits as a floating-point number


def decode_predict(
    body: bytes, signatures: Mapping[str, SignatureSpec], limits: Limits
) -> PredictRequest:
    """Decodes the body of a `:predict` request.

    The content type of the body does not matter.

    Raises:
        ServingError: INVALID_ARGUMENT for a body that is not JSON, has both or neither of
            `instances` and `inputs`, or has tensors that do not fit the signature; UNIMPLEMENTED
            for element types that JSON cannot express.

    Example:
        >>> from server.tensors import SignatureSpec, TensorSpec, dtype_of_name
        >>> spec = TensorSpec("x", dtype_of_name("int64"), (None,))
        >>> signatures = {"serving_default": SignatureSpec("serving_default", {"x": spec}, {})}
        >>> decode_predict(b'{"instances": [1, 2]}', signatures, Limits()).inputs
        {'x': array([1, 2])}
    """
    limits.check_elements(body)
    try:
        return _request(_DOCUMENT.decode(body), signatures, limits)
    except ServingError:
        if _LONG_NUMBER.search(body) is None:  # otherwise the error quotes all digits
            raise
    except (msgspec.MsgspecError, RecursionError, OverflowError, ValueError):
        pass  # the body is wrong, or holds something unusual, such as NaN or bytes after its end
    return _request(parse_json(body), signatures, limits)


def _request(
    document: Mapping[str, Any], signatures: Mapping[str, SignatureSpec], limits: Limits
) -> PredictRequest:
    signature = find_signature(signatures, signature_name(document))
    if not signature.inputs:
        raise invalid(f"Failed to get input map for signature: {signature.name}")
    # TensorFlow Serving ignores the key for all other signatures.
    if "shared" in document and ROW_SPLITS in signature.inputs:
        return PredictRequest(signature, "predictions", _shared_rows(document, signature, limits))
    if "instances" in document:
        if "inputs" in document:
            told = "expecting only one of 'inputs' or 'instances' keys to exist "
            raise wrong_value(document, f"Not formatted correctly {told}")
        rows = json_tensors.decode_rows(document, signature, limits)
        return PredictRequest(signature, "predictions", rows)
    if "inputs" in document:
        columns = json_tensors.decode_columns(document, signature, limits)
        return PredictRequest(signature, "outputs", columns)
    raise invalid("Missing 'inputs' or 'instances' key")


def _shared_rows(
    document: Mapping[str, Any], signature: SignatureSpec, limits: Limits
) -> dict[str, Array]:
    """Reads a request whose `shared` inputs have one row per user, and one instance per item.

    `shared` is an object: one user. Or it is a list of objects, and `row_splits` assigns the
    instances to them.
    """
    users, items = document["shared"], document.get("instances")
    users = [users] if isinstance(users, dict) else users
    if not isinstance(users, list) or not users or not isinstance(users[0], dict):
        raise invalid(
            f"'shared' must be an object or a list of objects. Received: {debug_string(users)}"
        )
    if "inputs" in document or not isinstance(items, list):
        raise invalid("'shared' needs 'instances', a list, and no 'inputs'")
    if ROW_SPLITS not in document and len(users) > 1:
        raise invalid(
            f"{ROW_SPLITS!r} must say which instances belong to which of the 'shared' objects. "
            f"Received: {len(users)} objects"
        )
    splits = document.get(ROW_SPLITS, [0, len(items)])
    named = {name: spec for name, spec in signature.inputs.items() if name != ROW_SPLITS}
    of_users = {name: spec for name, spec in named.items() if name in users[0]}
    of_items = {name: spec for name, spec in named.items() if name not in users[0]}
    if not of_users or not of_items:
        raise invalid(
            f"'shared' must hold some of the inputs {', '.join(named)}, and 'instances' the "
            "others. "
            f"Received: 'shared' with {', '.join(users[0]) or 'nothing'}"
        )
    arrays = {
        ROW_SPLITS: json_tensors.decode_value(splits, signature.inputs[ROW_SPLITS].dtype, limits)
    }
    for name, rows, inputs in (("shared", users, of_users), ("instances", items, of_items)):
        part = dataclasses.replace(signature, inputs=inputs)
        try:
            arrays |= json_tensors.decode_rows({"instances": rows}, part, limits)
        except ServingError as error:
            raise invalid(error.message.replace("'instances'", f"'{name}'")) from None
    return arrays


def find_signature(signatures: Mapping[str, SignatureSpec], name: str) -> SignatureSpec:
    """Returns the signature of a name, or raises `ServingError` (INVALID_ARGUMENT)."""
    try:
        return signatures[name]
    except KeyError:
        raise invalid(
            f'Serving signature name: "{name[:128]}" not found in signature def'
        ) from None


def signature_name(document: Mapping[str, Any]) -> str:
    """Returns the signature that a parsed request names, or the default."""
    name = document.get("signature_name", DEFAULT_SIGNATURE)
    if not isinstance(name, str):
        raise wrong_value(
            document, "not formatted correctly. 'signature_name' key must be a string value."
        )
    return name or DEFAULT_SIGNATURE


def encode_predict(outputs: Tensors, key: str, int64_as_string: bool = False) -> bytes:
    """Encodes a model's outputs in the layout of the request.

    The key `predictions` means a list over the first dimension, and `outputs` means whole tensors.
    With `int64_as_string`, 64-bit integers become JSON strings, for clients whose numbers are
    doubles.

    Raises:
        ServingError: INVALID_ARGUMENT if the outputs have no rows (a scalar, or tensors with
            different first dimensions) or an element type cannot be written.
    """
    if not outputs:
        raise invalid("Cannot convert empty tensor map to JSON")
    batch = -1
    if key == "predictions":
        for name, array in sorted(outputs.items()):
            if not array.ndim:
                raise invalid(f"Tensor name: {name} has no shape information ")
            if batch not in (-1, len(array)):
                raise invalid(
                    f"Tensor name: {name} has inconsistent batch size: {len(array)} "
                    f"expecting: {batch}"
                )
            batch = len(array)
    values: Any = {}
    for name, array in sorted(outputs.items()):
        values[name] = json_ready(name, array, int64_as_string=int64_as_string)
    if len(outputs) == 1:
        (values,) = values.values()
    elif key == "predictions":
        rows: list[dict[str, Any]] = [{} for _ in range(batch)]
        for name, items in values.items():
            if isinstance(items, orjson.Fragment):
                items = [json_ready(name, row) for row in outputs[name]]
            # orjson also writes numpy's scalars, so rows of a vector need no conversion.
            for row, item in zip(rows, items, strict=True):
                row[name] = item
        values = rows
    return orjson.dumps({key: values}, option=orjson.OPT_SERIALIZE_NUMPY)


def encode_classify(classes: Array, scores: Array) -> bytes:
    """Encodes classifications as lists of `[label, score]` pairs, one list per example.

    Labels are `bytes`. Labels and scores have the shape (examples, classes).

    Raises:
        ServingError: INVALID_ARGUMENT if there is nothing to encode.
    """
    if not len(classes):
        raise invalid("Cannot convert empty ClassificationResults to JSON")
    written: Any = scores  # orjson writes numpy's scalars, but null for NaN and infinities
    if not np.isfinite(scores).all():
        written = [[json_ready("", score) for score in row] for row in scores]
    results = [
        [[label.decode(errors="replace"), score] for label, score in zip(*example, strict=True)]
        for example in zip(classes, written, strict=True)
    ]
    return orjson.dumps({"results": results}, option=orjson.OPT_SERIALIZE_NUMPY)


def encode_regress(values: Array) -> bytes:
    """Encodes one value per example; `values` has shape (examples,)."""
    if not len(values):
        raise invalid("Cannot convert empty RegressionResults to JSON")
    return orjson.dumps({"results": json_ready("", values)}, option=orjson.OPT_SERIALIZE_NUMPY)
