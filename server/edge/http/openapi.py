"""The OpenAPI document, written by hand: the framework's router never sees these paths."""

from typing import Any

from ... import __version__
from .openapi_parts import ERRORS, content, error, get, parameter, post
from .openapi_schemas import SCHEMAS

_MODEL = parameter("model", "ranker")
_VERSION = parameter(
    "version",
    1,
    {"type": "integer", "format": "int64", "minimum": 0},
    "A version's number.",
)
_LABEL = parameter("label", "stable", description="A version's label.")
_TABLE = parameter("table", "user")
_INT64 = {
    "name": "int64",
    "in": "query",
    "description": "`string` writes 64-bit integers as JSON strings.",
    "schema": {"type": "string", "enum": ["string"]},
}
_TIMEOUT = {
    "name": "X-Request-Timeout-Ms",
    "in": "header",
    "description": "Milliseconds until the client stops waiting for the answer.",
    "schema": {"type": "integer", "minimum": 1, "maximum": 999_999_999},
}

_ROW_REQUEST = {"instances": [{"user": 7, "item": 42}, {"user": 8, "item": 42}]}
_COLUMN_REQUEST = {"inputs": {"user": [7, 8], "item": [42, 42]}}
_B64_REQUEST = {"instances": [{"b64": "aGVsbG8="}]}
_LOOKUP_REQUEST = {"table": "user", "ids": [7, "9007199254740993"]}
_POOLED_REQUEST = {"table": "user", "ids": [[7, 8], [9]], "combiner": "mean", "missing": "null"}
_INFER_REQUEST = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [2], "data": [1.0, 2.0]}]}
_INFER_ANSWER = {
    "model_name": "ranker",
    "model_version": "1",
    "outputs": [{"name": "y", "datatype": "FP32", "shape": [2], "data": [2.5, 3.0]}],
}
_BINARY = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}
_IN_QUERY = [
    {
        "name": name,
        "in": "query",
        "description": f"For ids in bytes: the same as `{name}` in a JSON body.",
        "schema": SCHEMAS["LookupBody"]["properties"][name],
    }
    for name in ("table", "combiner", "missing")
]
_JSON_LENGTH = {
    "name": "Inference-Header-Content-Length",
    "in": "header",
    "description": "Length of the JSON; the tensors' bytes follow it.",
    "schema": {"type": "integer", "minimum": 0},
}
_CONFIG = {
    "name": "ranker",
    "platform": "tensorflow_savedmodel",
    "backend": "tensorflow",
    "max_batch_size": 0,
    "input": [{"name": "x", "data_type": "TYPE_FP32", "dims": [-1]}],
    "output": [{"name": "y", "data_type": "TYPE_FP32", "dims": [-1]}],
}


def openapi_document() -> dict[str, Any]:
    """Returns the document of `/openapi.json`."""
    paths: dict[str, Any] = {}
    for base, parameters in (
        ("/v1/models/{model}", [_MODEL]),
        ("/v1/models/{model}/versions/{version}", [_MODEL, _VERSION]),
        ("/v1/models/{model}/labels/{label}", [_MODEL, _LABEL]),
    ):
        paths |= _model_paths(base, parameters)
    for base, parameters in (
        ("/v2/models/{model}", [_MODEL]),
        ("/v2/models/{model}/versions/{version}", [_MODEL, _VERSION]),
    ):
        paths |= _v2_paths(base, parameters)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Embedding gateway",
            "version": __version__,
            "description": "TensorFlow Serving's REST API, lookups of embeddings, and the Open "
            "Inference Protocol.",
        },
        "paths": paths | _operation_paths(),
        "components": {
            "schemas": SCHEMAS,
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer"},
                "key": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
            },
        },
        # A gateway without --keys-file needs no key.
        "security": [{}, {"bearer": []}, {"key": []}],
    }


def _model_paths(base: str, parameters: list[dict[str, Any]]) -> dict[str, Any]:
    which = "latest version" if base.endswith("{model}") else "version"
    of = _of(base)
    return {
        f"{base}:predict": post(
            f"predict{of}",
            f"Run a signature of the {which}",
            "Predict",
            [*parameters, _INT64, _TIMEOUT],
            {"rows": _ROW_REQUEST, "columns": _COLUMN_REQUEST, "bytes": _B64_REQUEST},
            {"rows": {"predictions": [0.5, 0.25]}, "columns": {"outputs": [0.5, 0.25]}},
        ),
        f"{base}:classify": post(
            f"classify{of}",
            f"Classify examples with the {which}",
            "Examples",
            [*parameters, _TIMEOUT],
            {"examples": {"examples": [{"age": 20, "tags": ["a", "b"]}]}},
            {"labels": {"results": [[["car", 0.75], ["bike", 0.25]]]}},
        ),
        f"{base}:regress": post(
            f"regress{of}",
            f"Regress examples with the {which}",
            "Examples",
            [*parameters, _TIMEOUT],
            {"examples": {"examples": [{"age": 20}], "context": {"query": "pizza"}}},
            {"values": {"results": [0.25]}},
        ),
        f"{base}:lookup": post(
            f"lookup{of}",
            f"Look up embeddings in a table of the {which}",
            "Lookup",
            [*parameters, *_IN_QUERY, _TIMEOUT],
            {"rows": _LOOKUP_REQUEST, "pooled": _POOLED_REQUEST},
            {
                "rows": {"embeddings": [[0.5, 1.0], [0.0, 0.0]], "found": [True, False]},
                "pooled": {
                    "embeddings": [[0.5, 1.0], None],
                    "found": [[True, False], [False]],
                },
            },
            _BINARY,
        ),
        base: get(
            f"model_status{of}",
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
        f"{base}/metadata": get(
            f"model_metadata{of}", "Signatures of the model", parameters, "Object", {}
        ),
        f"{base}/openapi.json": get(
            f"model_document{of}", "The OpenAPI document of this model", parameters, "Object", {}
        ),
        f"{base}/tables": get(
            f"tables{of}",
            "The model's embedding tables",
            parameters,
            "Tables",
            {"tables": [{"table": "user", "dim": 16, "rows": 1000, "key_dtype": "int64"}]},
        ),
        f"{base}/tables/{{table}}": get(
            f"table{of}",
            "One embedding table",
            [*parameters, _TABLE],
            "Table",
            {"table": "user", "dim": 16, "rows": 1000, "key_dtype": "int64"},
        ),
    }


def _v2_paths(base: str, parameters: list[dict[str, Any]]) -> dict[str, Any]:
    of = _of(base)
    return {
        base: get(f"v2_metadata{of}", "Inputs and outputs of the model", parameters, "Object", {}),
        f"{base}/ready": get(
            f"v2_model_ready{of}",
            "Whether the model serves",
            parameters,
            "Object",
            {"name": "ranker", "ready": True},
        ),
        f"{base}/config": get(
            f"v2_config{of}", "The model's configuration", parameters, "Object", _CONFIG
        ),
        f"{base}/infer": post(
            f"infer{of}",
            "Run a signature (Open Inference Protocol)",
            "Infer",
            [*parameters, _TIMEOUT, _JSON_LENGTH],
            {"tensors": _INFER_REQUEST},
            {"tensors": _INFER_ANSWER},
            _BINARY,
        ),
    }


def _of(base: str) -> str:
    """Returns the suffix for the ids of operations on a version or label."""
    parameter = base.rpartition("/")[2].strip("{}")
    return "" if parameter == "model" else f"_of_{parameter}"


def _operation_paths() -> dict[str, Any]:
    ok = {"status": "ok"}
    unavailable = {"503": error("Not now; try again later.")}
    paths = {
        "/": _told("alive", "Whether the process runs", {"status": "alive"}),
        "/livez": _told("livez", "Whether the process runs", ok),
        "/readyz": _told("readyz", "Whether every model serves", ok, unavailable),
        "/startupz": _told("startupz", "Whether the first loading is done", ok, unavailable),
        "/version": _told("version", "Software versions", {"gateway": "0.1.0"}),
        "/v2": _told("v2_server", "What this is", {"name": "embedding-gateway"}),
        "/v2/health/live": _told("v2_live", "Whether it runs", {"live": True}),
        "/v2/health/ready": _told(
            "v2_ready",
            "Whether every model serves",
            {"ready": True},
            {
                "503": {
                    "description": "Not ready; try again later.",
                    "content": {"application/json": content("Object", {})},
                }
            },
        ),
    }
    paths["/v2/repository/index"] = post(
        "v2_index",
        "All models and their versions",
        "Index",
        [],
        {"serving": {"ready": True}},
        {"one": [{"name": "ranker", "version": "1", "state": "READY"}]},
    )
    paths["/metrics"] = {
        "get": {
            "operationId": "metrics",
            "summary": "Prometheus metrics",
            "responses": {
                "200": {
                    "description": "Text exposition",
                    "content": {"text/plain": {"schema": {"type": "string"}}},
                }
            },
        }
    }
    paths["/ui"] = {
        "get": {
            "operationId": "page",
            "summary": "A page with models, tables and traffic; only with --ui",
            "responses": {
                "200": {
                    "description": "HTML",
                    "content": {"text/html": {"schema": {"type": "string"}}},
                },
                "404": error("The gateway was started without --ui."),
                "429": error(ERRORS["429"]),
            },
        }
    }
    return paths


def _told(
    name: str, summary: str, example: dict[str, Any], errors: dict[str, Any] | None = None
) -> dict[str, Any]:
    return get(name, summary, [], "Object", example, errors or {})
