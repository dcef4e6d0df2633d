"""Schemas of the OpenAPI document. The structs that decode bodies also describe them."""

from typing import Any

import msgspec

from ...wire.lookup import LookupBody
from ...wire.oip_body import InferBody
from ...wire.predict import PredictBody
from ...wire.strings import B64

_STRING = {"type": "string"}
_LIST: dict[str, Any] = {"type": "array", "items": {}}
_SIGNATURE = {**_STRING, "default": "serving_default", "description": "The signature to run."}
_FEATURES = {
    "type": "object",
    "description": "A value or a list of values by feature name.",
}

_ANSWERS: dict[str, Any] = {
    "Error": {
        "type": "object",
        "required": ["error"],
        "properties": {"error": _STRING},
    },
    "Object": {"type": "object"},
    "PredictAnswer": {
        "type": "object",
        "properties": {
            "predictions": {**_LIST, "description": "The answer to `instances`."},
            "outputs": {"description": "The answer to `inputs`."},
        },
    },
    "ExamplesBody": {
        "type": "object",
        "required": ["examples"],
        "properties": {
            "signature_name": _SIGNATURE,
            "context": _FEATURES,
            "examples": {"type": "array", "minItems": 1, "items": _FEATURES},
        },
    },
    "ExamplesAnswer": {
        "type": "object",
        "required": ["results"],
        "properties": {"results": _LIST},
    },
    "LookupAnswer": {
        "type": "object",
        "required": ["embeddings", "found"],
        "properties": {
            "embeddings": {
                "oneOf": [
                    _LIST,
                    {
                        "type": "object",
                        "required": ["b64", "dtype", "shape"],
                        "properties": {
                            "b64": _STRING,
                            "dtype": _STRING,
                            "shape": {"type": "array", "items": {"type": "integer"}},
                        },
                    },
                ]
            },
            "found": {**_LIST, "description": "Has the nesting of `ids`."},
        },
    },
    "InferAnswer": {
        "type": "object",
        "required": ["model_name", "model_version", "outputs"],
        "properties": {
            "id": _STRING,
            "model_name": _STRING,
            "model_version": _STRING,
            "outputs": {"type": "array", "items": {"$ref": "#/components/schemas/InputTensor"}},
        },
    },
    "IndexBody": {
        "type": "object",
        "properties": {
            "ready": {"type": "boolean", "description": "True to list only models that serve."}
        },
    },
    "IndexAnswer": {
        "type": "array",
        "items": {
            "type": "object",
            "required": ["name", "version", "state"],
            "properties": {
                "name": _STRING,
                "version": _STRING,
                "state": {"enum": ["READY", "LOADING", "UNAVAILABLE"], **_STRING},
                "reason": _STRING,
            },
        },
    },
    "ModelStatus": {
        "type": "object",
        "required": ["model_version_status"],
        "properties": {
            "model_version_status": {
                "type": "array",
                "items": {
                    "type": "object",
                    "required": ["version", "state", "status"],
                    "properties": {
                        "version": _STRING,
                        "state": {"enum": ["START", "LOADING", "AVAILABLE", "UNLOADING", "END"]},
                        "status": {
                            "type": "object",
                            "properties": {"error_code": _STRING, "error_message": _STRING},
                        },
                    },
                },
            }
        },
    },
    "Table": {
        "type": "object",
        "required": ["table"],
        "properties": {
            "table": _STRING,
            "dim": {"type": "integer"},
            "rows": {"type": "integer"},
            "key_dtype": _STRING,
            "value_dtype": _STRING,
        },
    },
    "Tables": {
        "type": "object",
        "required": ["tables"],
        "properties": {
            "tables": {"type": "array", "items": {"$ref": "#/components/schemas/Table"}}
        },
    },
}

_, _BODIES = msgspec.json.schema_components(
    (PredictBody, LookupBody, InferBody, B64), ref_template="#/components/schemas/{name}"
)
SCHEMAS: dict[str, Any] = {**_ANSWERS, **_BODIES}
