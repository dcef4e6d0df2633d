"""Model status and metadata as JSON, in TensorFlow Serving's form (proto3: int64 as strings)."""

from collections.abc import Iterable, Mapping
from typing import Any

import orjson

from ..errors import Code
from ..tensors import SignatureSpec, TensorSpec


def status_entry(version: int, state: str, code: Code, message: str) -> dict[str, Any]:
    """Returns one entry of `model_version_status`."""
    return {
        "version": str(version),
        "state": state,
        "status": {"error_code": code.value, "error_message": message},
    }


def encode_status(entries: Iterable[Mapping[str, Any]]) -> bytes:
    """Encodes the answer to `GET /v1/models/{model}`."""
    return orjson.dumps({"model_version_status": list(entries)})


def encode_metadata(model: str, version: int, signatures: Iterable[SignatureSpec]) -> bytes:
    """Encodes the answer to `GET /v1/models/{model}/metadata`."""
    definitions = {
        signature.name: {
            "inputs": _tensors(signature.inputs),
            "outputs": _tensors(signature.outputs),
            "method_name": signature.method_name,
            "defaults": {},
        }
        for signature in signatures
    }
    return orjson.dumps(
        {
            "model_spec": {"name": model, "signature_name": "", "version": str(version)},
            "metadata": {"signature_def": {"signature_def": definitions}},
        }
    )


def _tensors(specs: Mapping[str, TensorSpec]) -> dict[str, Any]:
    return {
        name: {
            "dtype": spec.dtype.enum_name,
            "tensor_shape": {
                "dim": [
                    {"size": "-1" if size is None else str(size), "name": ""}
                    for size in spec.shape or ()
                ],
                "unknown_rank": spec.shape is None,
            },
            "name": spec.tensor_name,
        }
        for name, spec in sorted(specs.items())
    }
