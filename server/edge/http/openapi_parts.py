"""Building blocks of the OpenAPI document's operations."""

from collections.abc import Mapping
from typing import Any

ERRORS = {
    "400": "The request is wrong: path, JSON, signature, types or shapes.",
    "401": "A key is needed.",
    "403": "The key does not open this.",
    "404": "There is no such model, version or table.",
    "408": "The body did not arrive in time.",
    "413": "The body is too large.",
    "415": "The body has a Content-Encoding other than gzip and deflate.",
    "429": "Too many requests: at once, a second, or waiting.",
    "431": "The head of the request is too large.",
    "500": "The model, or the gateway, failed.",
    "501": "The element type cannot be carried.",
    "503": "No model server can be reached, or the gateway is about to stop.",
    "504": "The answer was not there in time.",
}
_READ_ERRORS = ("400", "401", "403", "404", "408", "413", "415", "429", "431", "503", "504")


def parameter(
    name: str, example: Any, schema: Mapping[str, Any] | None = None, description: str = ""
) -> dict[str, Any]:
    """Returns a parameter of a path."""
    told = {"description": description} if description else {}
    return {
        "name": name,
        "in": "path",
        "required": True,
        "schema": schema or {"type": "string"},
        "example": example,
        **told,
    }


def post(
    name: str,
    summary: str,
    schema: str,
    parameters: list[dict[str, Any]],
    requests: dict[str, Any],
    answers: dict[str, Any],
    binary: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Returns an operation with a body.

    Args:
        name: The operation's id. Generated clients name their functions by it.
        summary: One line about the operation.
        schema: The first part of the names of its two schemas, `…Body` and `…Answer`.
        parameters: Its parameters.
        requests: Examples of bodies by name.
        answers: Examples of answers by name.
        binary: Other formats of request and answer, by media type.
    """
    return {
        "post": {
            "operationId": name,
            "summary": summary,
            "parameters": parameters,
            "requestBody": {
                "required": True,
                "content": {
                    "application/json": content(f"{schema}Body", requests),
                    **(binary or {}),
                },
            },
            "responses": {
                "200": {
                    "description": "The answer",
                    "headers": {
                        "x-model-version": {
                            "description": "The version that answered.",
                            "schema": {"type": "string"},
                        }
                    },
                    "content": {
                        "application/json": content(f"{schema}Answer", answers),
                        **(binary or {}),
                    },
                },
                **{status: error(text) for status, text in ERRORS.items()},
            },
        }
    }


def get(
    name: str,
    summary: str,
    parameters: list[dict[str, Any]],
    schema: str,
    example: dict[str, Any],
    errors: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Returns an operation without a body. Its `errors` are by default those of a model's reads."""
    if errors is None:
        errors = {status: error(ERRORS[status]) for status in _READ_ERRORS}
    return {
        "get": {
            "operationId": name,
            "summary": summary,
            "parameters": parameters,
            "responses": {
                "200": {
                    "description": "The answer",
                    "content": {"application/json": content(schema, {"example": example})},
                },
                **errors,
            },
        }
    }


def content(schema: str, examples: dict[str, Any]) -> dict[str, Any]:
    """Returns the description of a JSON body: its schema and examples."""
    return {
        "schema": {"$ref": f"#/components/schemas/{schema}"},
        "examples": {name: {"value": value} for name, value in examples.items()},
    }


def error(description: str) -> dict[str, Any]:
    """Returns the response of an error."""
    told = {"schema": {"$ref": "#/components/schemas/Error"}}
    return {"description": description, "content": {"application/json": told}}
