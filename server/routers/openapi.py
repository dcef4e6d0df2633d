"""The parts of the OpenAPI document that FastAPI cannot know: tensors, and the paths of models.

`model_openapi` writes a document for one model, from its signatures.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import quote

from fastapi import FastAPI

from .. import __version__
from ..tensors import DEFAULT_SIGNATURE, Kind, SignatureSpec, TensorSpec
from ..wire.predict import ROW_SPLITS
from .schemas import BODIES, Error

_ERRORS = {
    400: "The request is wrong: path, JSON, signature, types or shapes.",
    401: "A key is needed.",
    403: "The key does not open this.",
    404: "There is no such model, version or table.",
    408: "The body did not arrive in time.",
    413: "The body is too large.",
    415: "The body has a Content-Encoding other than gzip and deflate.",
    429: "Too many requests: at once, a second, or waiting.",
    431: "The head of the request is too large.",
    500: "The model, or the gateway, failed.",
    501: "The element type cannot be carried.",
    503: "No model server can be reached, or the gateway is about to stop.",
    504: "The answer was not there in time.",
}
_PATH = {
    "model": ("ranker", {"type": "string"}, "The model's name."),
    "version": (1, {"type": "integer", "format": "int64", "minimum": 0}, "A version's number."),
    "label": ("stable", {"type": "string"}, "A version's label."),
    "table": ("user", {"type": "string"}, "The table's name."),
}
INT64 = {
    "name": "int64",
    "in": "query",
    "description": "`string` writes 64-bit integers as JSON strings.",
    "schema": {"type": "string", "enum": ["string"]},
}
TIMEOUT = {
    "name": "X-Request-Timeout-Ms",
    "in": "header",
    "description": "Milliseconds until the client stops waiting for the answer.",
    "schema": {"type": "integer", "minimum": 1, "maximum": 999_999_999},
}
JSON_LENGTH = {
    "name": "Inference-Header-Content-Length",
    "in": "header",
    "description": "Length of the JSON; the tensors' bytes follow it.",
    "schema": {"type": "integer", "minimum": 0},
}
LOOKUP_QUERY = [
    {
        "name": name,
        "in": "query",
        "description": f"For ids in bytes: the same as `{name}` in a JSON body.",
        "schema": BODIES["LookupBody"]["properties"][name],
    }
    for name in ("table", "combiner", "missing")
]
_BINARY = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}

_ELEMENT: dict[Kind, dict[str, Any]] = {
    Kind.INT: {"type": "integer"},
    Kind.UINT64: {"type": "integer", "minimum": 0},
    Kind.FLOAT: {"type": "number"},
    Kind.BOOL: {"type": "boolean"},
    Kind.STRING: {"oneOf": [{"type": "string"}, {"$ref": "#/components/schemas/B64"}]},
    Kind.OTHER: {},
}


def described(
    path: str,
    name: str,
    answer: Any,
    body: str = "",
    examples: Mapping[str, Any] | None = None,
    parameters: Sequence[Mapping[str, Any]] = (),
    binary: bool = False,
) -> dict[str, Any]:
    """Returns the description of an operation about a model, for `APIRouter.add_api_route`.

    Args:
        path: The operation's path.
        name: The operation's id. Generated clients name their functions by it.
        answer: The model of its answer.
        body: The name of the body's schema in `BODIES`; empty for no body.
        examples: Examples of bodies by name.
        parameters: Parameters of the query and the head.
        binary: True if request and answer may also be bytes.
    """
    names = re.findall(r"\{(\w+)\}", path)
    chosen = [choice for choice in names if choice in ("version", "label")]
    extra: dict[str, Any] = {"parameters": [*map(_path_parameter, names), *parameters]}
    content = dict(_BINARY) if binary else {}
    if body:
        json = {
            "schema": {"$ref": f"#/components/schemas/{body}"},
            "examples": {title: {"value": value} for title, value in (examples or {}).items()},
        }
        extra["requestBody"] = {"required": True, "content": {"application/json": json, **content}}
    told = {"model": answer, "description": "The answer", "content": content}
    return {
        "operation_id": "_of_".join((name, *chosen)),
        "openapi_extra": extra,
        "responses": {200: told, **errors(*_ERRORS)},
    }


def errors(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Returns the descriptions of errors, for the argument `responses` of a route."""
    return {status: {"model": Error, "description": _ERRORS[status]} for status in statuses}


def add_document(app: FastAPI) -> None:
    """Adds the schemas of tensors, and the keys, to FastAPI's document."""
    write = app.openapi

    def openapi() -> dict[str, Any]:
        document = write()
        document["components"]["schemas"].update(BODIES)
        document["components"]["securitySchemes"] = {
            "bearer": {"type": "http", "scheme": "bearer"},
            "key": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
        }
        # A gateway without --keys-file needs no key.
        document["security"] = [{}, {"bearer": []}, {"key": []}]
        return document

    # FastAPI's documentation says to replace the method `openapi` to extend the document.
    setattr(app, "openapi", openapi)  # noqa: B010


def _path_parameter(name: str) -> dict[str, Any]:
    example, schema, description = _PATH[name]
    return {
        "name": name,
        "in": "path",
        "required": True,
        "schema": schema,
        "example": example,
        "description": description,
    }


def model_openapi(model: str, signatures: Mapping[str, SignatureSpec]) -> dict[str, Any]:
    """Returns the document: the input and output rows of `:predict` for each signature.

    `signatures` are the signatures of the version that serves.
    """
    asked = [each for _, each in sorted(signatures.items()) if each.inputs]
    plain = [each for each in asked if each.method_name.endswith("/predict")]
    operation = {
        "operationId": "predict",
        "summary": "Run a signature",
        "requestBody": {"required": True, "content": _one_of(plain)},
        "responses": {"200": {"description": "The answer", "content": _one_of(plain, True)}},
    }
    return {
        "openapi": "3.1.0",
        "info": {"title": model, "version": __version__},
        "paths": {f"/v1/models/{quote(model, safe='')}:predict": {"post": operation}},
        "components": {"schemas": {"B64": BODIES["B64"]}},
    }


def _one_of(signatures: Iterable[SignatureSpec], are_answers: bool = False) -> dict[str, Any]:
    schemas = [_schema(signature, are_answers) for signature in signatures]
    return {"application/json": {"schema": {"oneOf": schemas}}}


def _schema(signature: SignatureSpec, is_answer: bool) -> dict[str, Any]:
    """Returns the schema of a request to a signature, or of its answer."""
    specs = signature.outputs if is_answer else signature.inputs
    if ROW_SPLITS in signature.inputs:  # its inputs have different numbers of rows
        layout, tensors = "outputs" if is_answer else "inputs", _tensors(specs, 0)
    else:
        layout = "predictions" if is_answer else "instances"
        least = {} if is_answer else {"minItems": 1}
        tensors = {"type": "array", **least, "items": _tensors(specs, 1)}
    required, properties = [layout], {layout: tensors}
    if not is_answer:
        properties["signature_name"] = {"const": signature.name}
        if signature.name != DEFAULT_SIGNATURE:
            required.append("signature_name")
    return {
        "title": signature.name,
        "type": "object",
        "required": required,
        "properties": properties,
    }


def _tensors(specs: Mapping[str, TensorSpec], first: int) -> dict[str, Any]:
    """Returns the schema of tensors by name, from their dimension `first` on."""
    schemas = {}
    for name, spec in sorted(specs.items()):
        schema = _ELEMENT[spec.dtype.kind]
        for size in reversed((spec.shape or (None,))[first:]):
            schema = {"type": "array", "items": schema}
            if size is not None:
                schema |= {"minItems": size, "maxItems": size}
        schemas[name] = schema
    if len(schemas) == 1:
        return next(iter(schemas.values()))
    return {
        "type": "object",
        "required": list(schemas),
        "properties": schemas,
        "additionalProperties": False,
    }
