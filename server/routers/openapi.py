"""The parts of the OpenAPI document that FastAPI cannot know: tensors, and the paths of models."""

import dataclasses
import re
from collections.abc import Mapping, Sequence
from typing import Any

from fastapi import FastAPI

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


@dataclasses.dataclass(frozen=True)
class Operation:
    """The description of an operation about a model.

    Attributes:
        name: The operation's id. Generated clients name their functions by it.
        summary: One line about the operation.
        answer: The model of its answer.
        answers: Examples of answers by name.
        body: The name of the body's schema in `BODIES`; empty for no body.
        bodies: Examples of bodies by name.
        parameters: Parameters of the query and the head.
        binary: True if request and answer may also be bytes.
    """

    name: str
    summary: str
    answer: Any
    answers: Mapping[str, Any]
    body: str = ""
    bodies: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    parameters: Sequence[Mapping[str, Any]] = ()
    binary: bool = False

    def at(self, path: str) -> dict[str, Any]:
        """Returns the arguments of `APIRouter.add_api_route` for a path."""
        names = re.findall(r"\{(\w+)\}", path)
        chosen = [name for name in names if name in ("version", "label")]
        parameters = [_path_parameter(name) for name in names]
        extra: dict[str, Any] = {"parameters": [*parameters, *self.parameters]}
        binary = _BINARY if self.binary else {}
        if self.body:
            json = {"schema": {"$ref": f"#/components/schemas/{self.body}"}}
            content = {"application/json": {**json, **_examples(self.bodies)}, **binary}
            extra["requestBody"] = {"required": True, "content": content}
        told = {"application/json": _examples(self.answers), **binary}
        answer = {"model": self.answer, "description": "The answer", "content": told}
        return {
            "operation_id": "_of_".join((self.name, *chosen)),
            "summary": self.summary,
            "openapi_extra": extra,
            "responses": {200: answer, **errors(*_ERRORS)},
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


def _examples(examples: Mapping[str, Any]) -> dict[str, Any]:
    return {"examples": {name: {"value": value} for name, value in examples.items()}}
