"""The OpenAPI document, written by hand: the framework's router never sees these paths."""

from typing import Any

from server import __version__
from server.edge.http.openapi_parts import ERRORS, content, error, get, parameter, post
from server.edge.http.openapi_schemas import SCHEMAS

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
    "description": "Milliseconds after which the client does not want the answer any more.",
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
_BINARY = {
    "application/x-npz": {"schema": {"type": "string", "format": "binary"}},
    "application/octet-stream": {"schema": {"type": "string", "format": "binary"}},
}
_NPZ = {"application/x-npz": _BINARY["application/x-npz"]}


def openapi_document() -> dict[str, Any]:
    """Returns the document that `/openapi.json` answers with."""
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
        # None is needed where the gateway runs without --keys-file.
        "security": [{}, {"bearer": []}, {"key": []}],
    }


def _model_paths(base: str, parameters: list[dict[str, Any]]) -> dict[str, Any]:
    which = "latest version" if base.endswith("{model}") else "version"
    return {
        f"{base}:predict": post(
            f"Run a signature of the {which}",
            "Predict",
            [*parameters, _INT64, _TIMEOUT],
            {"rows": _ROW_REQUEST, "columns": _COLUMN_REQUEST, "bytes": _B64_REQUEST},
            {"rows": {"predictions": [0.5, 0.25]}, "columns": {"outputs": [0.5, 0.25]}},
            _NPZ,
        ),
        f"{base}:classify": post(
            f"Classify examples with the {which}",
            "Examples",
            [*parameters, _TIMEOUT],
            {"examples": {"examples": [{"age": 20, "tags": ["a", "b"]}]}},
            {"labels": {"results": [[["car", 0.75], ["bike", 0.25]]]}},
        ),
        f"{base}:regress": post(
            f"Regress examples with the {which}",
            "Examples",
            [*parameters, _TIMEOUT],
            {"examples": {"examples": [{"age": 20}], "context": {"query": "pizza"}}},
            {"values": {"results": [0.25]}},
        ),
        f"{base}:lookup": post(
            f"Look embeddings up in a table of the {which}",
            "Lookup",
            [*parameters, _TIMEOUT],
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
        f"{base}/metadata": get("Signatures of the model", parameters, "Object", {}),
        f"{base}/openapi.json": get("This model's own document", parameters, "Object", {}),
        f"{base}/tables": get(
            "The model's embedding tables",
            parameters,
            "Tables",
            {"tables": [{"table": "user", "dim": 16, "rows": 1000, "key_dtype": "int64"}]},
        ),
        f"{base}/tables/{{table}}": get(
            "One embedding table",
            [*parameters, _TABLE],
            "Table",
            {"table": "user", "dim": 16, "rows": 1000, "key_dtype": "int64"},
        ),
    }


def _v2_paths(base: str, parameters: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        base: get("Inputs and outputs of the model", parameters, "Object", {}),
        f"{base}/ready": get(
            "Whether the model serves", parameters, "Object", {"name": "ranker", "ready": True}
        ),
        f"{base}/infer": post(
            "Run a signature (Open Inference Protocol)",
            "Infer",
            [*parameters, _TIMEOUT],
            {"tensors": _INFER_REQUEST},
            {"tensors": _INFER_ANSWER},
        ),
    }


def _operation_paths() -> dict[str, Any]:
    ok = {"status": "ok"}
    unavailable = {"503": error("Not now; try again later.")}
    paths = {
        "/livez": get("Whether the process runs", [], "Object", ok, errors={}),
        "/readyz": get("Whether every model serves", [], "Object", ok, errors=unavailable),
        "/startupz": get("Whether the first loading is done", [], "Object", ok, unavailable),
        "/version": get("Software versions", [], "Object", {"gateway": "0.1.0"}, errors={}),
        "/v2": get("What this is", [], "Object", {"name": "embedding-gateway"}, errors={}),
        "/v2/health/live": get("Whether it runs", [], "Object", {"live": True}, errors={}),
        "/v2/health/ready": get(
            "Whether every model serves",
            [],
            "Object",
            {"ready": True},
            errors={
                "503": {
                    "description": "Not now; try again later.",
                    "content": {"application/json": content("Object", {})},
                }
            },
        ),
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
    paths["/ui"] = {
        "get": {
            "summary": "A page that shows what is served",
            "responses": {
                "200": {
                    "description": "HTML",
                    "content": {"text/html": {"schema": {"type": "string"}}},
                },
                "429": error(ERRORS["429"]),
            },
        }
    }
    return paths
