"""The OpenAPI document of one model, generated from its signatures."""

from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import quote

import orjson

from .. import __version__
from ..tensors import DEFAULT_SIGNATURE, Kind, SignatureSpec, TensorSpec
from .schemas import BODIES

_ELEMENT: dict[Kind, dict[str, Any]] = {
    Kind.INT: {"type": "integer"},
    Kind.UINT64: {"type": "integer", "minimum": 0},
    Kind.FLOAT: {"type": "number"},
    Kind.BOOL: {"type": "boolean"},
    Kind.STRING: {"oneOf": [{"type": "string"}, {"$ref": "#/components/schemas/B64"}]},
    Kind.OTHER: {},
}


def model_openapi(model: str, signatures: Mapping[str, SignatureSpec]) -> bytes:
    """Returns the document: the input and output rows of `:predict` for each signature.

    Args:
        model: The model's name.
        signatures: The signatures of the version that serves.
    """
    plain = [s for _, s in sorted(signatures.items()) if s.method_name.endswith("/predict")]
    operation = {
        "operationId": "predict",
        "summary": "Run a signature",
        "requestBody": {"required": True, "content": _one_of(map(_request, plain))},
        "responses": {
            "200": {"description": "The answer", "content": _one_of(map(_answer, plain))}
        },
    }
    document = {
        "openapi": "3.1.0",
        "info": {"title": model, "version": __version__},
        "paths": {f"/v1/models/{quote(model, safe='')}:predict": {"post": operation}},
        "components": {"schemas": {"B64": BODIES["B64"]}},
    }
    return orjson.dumps(document)


def _one_of(schemas: Iterable[dict[str, Any]]) -> dict[str, Any]:
    return {"application/json": {"schema": {"oneOf": list(schemas)}}}


def _request(signature: SignatureSpec) -> dict[str, Any]:
    required = ["instances"]
    if signature.name != DEFAULT_SIGNATURE:
        required.append("signature_name")
    rows = {"type": "array", "minItems": 1, "items": _row(signature.inputs)}
    return {
        "title": signature.name,
        "type": "object",
        "required": required,
        "properties": {"signature_name": {"const": signature.name}, "instances": rows},
    }


def _answer(signature: SignatureSpec) -> dict[str, Any]:
    return {
        "title": signature.name,
        "type": "object",
        "required": ["predictions"],
        "properties": {"predictions": {"type": "array", "items": _row(signature.outputs)}},
    }


def _row(specs: Mapping[str, TensorSpec]) -> dict[str, Any]:
    if len(specs) == 1:
        (spec,) = specs.values()
        return _tensor(spec)
    return {
        "type": "object",
        "required": sorted(specs),
        "properties": {name: _tensor(spec) for name, spec in sorted(specs.items())},
        "additionalProperties": False,
    }


def _tensor(spec: TensorSpec) -> dict[str, Any]:
    schema = _ELEMENT[spec.dtype.kind]
    for size in reversed((spec.shape or ())[1:]):
        schema = {"type": "array", "items": schema}
        if size is not None:
            schema |= {"minItems": size, "maxItems": size}
    return schema
