"""The OpenAPI document, written by hand: the framework's router never sees these paths."""

from typing import Any

from server import __version__
from server.api.openapi_schemas import SCHEMAS

_MODEL = {
    "name": "model",
    "in": "path",
    "required": True,
    "schema": {"type": "string"},
    "example": "ranker",
}
_VERSION = {
    "name": "version",
    "in": "path",
    "required": True,
    "description": "A version's number.",
    "schema": {"type": "integer", "format": "int64", "minimum": 0},
    "example": 1,
}
_TABLE = {
    "name": "table",
    "in": "path",
    "required": True,
    "schema": {"type": "string"},
    "example": "user",
}
_INT64 = {
    "name": "int64",
    "in": "query",
    "description": "`string` writes 64-bit integers as JSON strings.",
    "schema": {"type": "string", "enum": ["string"]},
}
_ERRORS = {
    "400": "The request is wrong: path, JSON, signature, types or shapes.",
    "404": "There is no such model, version or table.",
    "413": "The body is too large.",
    "415": "The body has a Content-Encoding other than gzip.",
    "429": "Too many requests wait.",
    "500": "The model, or the gateway, failed.",
}

_ROW_REQUEST = {"instances": [{"user": 7, "item": 42}, {"user": 8, "item": 42}]}
_COLUMN_REQUEST = {"inputs": {"user": [7, 8], "item": [42, 42]}}
_B64_REQUEST = {"instances": [{"b64": "aGVsbG8="}]}
_LOOKUP_REQUEST = {"table": "user", "ids": [7, "9007199254740993"]}
_POOLED_REQUEST = {"table": "user", "ids": [[7, 8], [9]], "combiner": "mean", "missing": "null"}


def openapi_document() -> dict[str, Any]:
    """Returns the document that `/openapi.json` answers with."""
    paths: dict[str, Any] = {}
    for base, parameters in (
        ("/v1/models/{model}", [_MODEL]),
        ("/v1/models/{model}/versions/{version}", [_MODEL, _VERSION]),
    ):
        paths |= _model_paths(base, parameters)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Embedding gateway",
            "version": __version__,
            "description": "TensorFlow Serving's REST API, and lookups of embeddings.",
        },
        "paths": paths | _operation_paths(),
        "components": {"schemas": SCHEMAS},
    }


def _model_paths(base: str, parameters: list[dict[str, Any]]) -> dict[str, Any]:
    which = "latest version" if "{version}" not in base else "version"
    return {
        f"{base}:predict": _post(
            f"Run a signature of the {which}",
            "Predict",
            [*parameters, _INT64],
            {"rows": _ROW_REQUEST, "columns": _COLUMN_REQUEST, "bytes": _B64_REQUEST},
            {"rows": {"predictions": [0.5, 0.25]}, "columns": {"outputs": [0.5, 0.25]}},
        ),
        f"{base}:classify": _post(
            f"Classify examples with the {which}",
            "Examples",
            parameters,
            {"examples": {"examples": [{"age": 20, "tags": ["a", "b"]}]}},
            {"labels": {"results": [[["car", 0.75], ["bike", 0.25]]]}},
        ),
        f"{base}:regress": _post(
            f"Regress examples with the {which}",
            "Examples",
            parameters,
            {"examples": {"examples": [{"age": 20}], "context": {"query": "pizza"}}},
            {"values": {"results": [0.25]}},
        ),
        f"{base}:lookup": _post(
            f"Look embeddings up in a table of the {which}",
            "Lookup",
            parameters,
            {"rows": _LOOKUP_REQUEST, "pooled": _POOLED_REQUEST},
            {
                "rows": {"embeddings": [[0.5, 1.0], [0.0, 0.0]], "found": [True, False]},
                "pooled": {
                    "embeddings": [[0.5, 1.0], None],
                    "found": [[True, False], [False]],
                },
            },
        ),
        base: _get(
            "State of the model's versions",
            parameters,
            "ModelStatus",
            {
                "model_version_status": [
                    {
                        "version": "1",
                        "state": "AVAILABLE",
                        "status": {"error_code": "OK", "error_message": ""},
                    }
                ]
            },
        ),
        f"{base}/metadata": _get("Signatures of the model", parameters, "Object", {}),
        f"{base}/tables": _get(
            "The model's embedding tables",
            parameters,
            "Tables",
            {"tables": [{"table": "user", "dim": 16, "rows": 1000, "key_dtype": "int64"}]},
        ),
        f"{base}/tables/{{table}}": _get(
            "One embedding table",
            [*parameters, _TABLE],
            "Table",
            {"table": "user", "dim": 16, "rows": 1000, "key_dtype": "int64"},
        ),
    }


def _operation_paths() -> dict[str, Any]:
    ok = {"status": "ok"}
    unavailable = {"503": _error("Not now; try again later.")}
    paths = {
        "/livez": _get("Whether the process runs", [], "Object", ok, errors={}),
        "/readyz": _get("Whether every model serves", [], "Object", ok, errors=unavailable),
        "/startupz": _get("Whether the first loading is done", [], "Object", ok, unavailable),
        "/version": _get("Software versions", [], "Object", {"gateway": "0.1.0"}, errors={}),
    }
    paths["/metrics"] = {
        "get": {
            "summary": "Prometheus metrics",
            "responses": {
                "200": {
                    "description": "Text exposition",
                    "content": {"text/plain": {"schema": {"type": "string"}}},
                }
            },
        }
    }
    return paths


def _post(
    summary: str,
    schema: str,
    parameters: list[dict[str, Any]],
    requests: dict[str, Any],
    answers: dict[str, Any],
) -> dict[str, Any]:
    return {
        "post": {
            "summary": summary,
            "parameters": parameters,
            "requestBody": {
                "required": True,
                "content": {"application/json": _content(f"{schema}Request", requests)},
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
                    "content": {"application/json": _content(f"{schema}Answer", answers)},
                },
                **{status: _error(text) for status, text in _ERRORS.items()},
            },
        }
    }


def _get(
    summary: str,
    parameters: list[dict[str, Any]],
    schema: str,
    example: dict[str, Any],
    errors: dict[str, Any] | None = None,
) -> dict[str, Any]:
    if errors is None:
        errors = {status: _error(_ERRORS[status]) for status in ("400", "404")}
    return {
        "get": {
            "summary": summary,
            "parameters": parameters,
            "responses": {
                "200": {
                    "description": "The answer",
                    "content": {"application/json": _content(schema, {"example": example})},
                },
                **errors,
            },
        }
    }


def _content(schema: str, examples: dict[str, Any]) -> dict[str, Any]:
    return {
        "schema": {"$ref": f"#/components/schemas/{schema}"},
        "examples": {name: {"value": value} for name, value in examples.items()},
    }


def _error(description: str) -> dict[str, Any]:
    content = {"schema": {"$ref": "#/components/schemas/Error"}}
    return {"description": description, "content": {"application/json": content}}
