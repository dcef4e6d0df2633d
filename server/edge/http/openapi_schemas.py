"""Schemas of the OpenAPI document."""

from typing import Any

_STRING = {"type": "string"}
_SIGNATURE = {**_STRING, "default": "serving_default", "description": "Which signature to run."}
_VALUE = {
    "description": "A value, or nested lists of values of equal length: numbers, booleans, "
    'strings, or `{"b64": "…"}` for bytes.'
}
_ID = {"oneOf": [{"type": "integer"}, _STRING, {"$ref": "#/components/schemas/Bytes"}]}
_FEATURES = {
    "type": "object",
    "description": "A value or a list of values by feature name.",
}

_INFER_TENSOR = {
    "type": "object",
    "required": ["name", "datatype", "shape", "data"],
    "properties": {
        "name": _STRING,
        "datatype": {
            "enum": [
                *("BOOL", "UINT8", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64"),
                *("FP16", "BF16", "FP32", "FP64", "BYTES"),
            ]
        },
        "shape": {"type": "array", "items": {"type": "integer", "minimum": 0}},
        "data": {"type": "array", "description": "Flat in row-major order, or nested."},
    },
}

SCHEMAS: dict[str, Any] = {
    "Error": {
        "type": "object",
        "required": ["error"],
        "properties": {"error": _STRING},
    },
    "Object": {"type": "object"},
    "Bytes": {
        "type": "object",
        "required": ["b64"],
        "properties": {"b64": {**_STRING, "contentEncoding": "base64"}},
        "additionalProperties": False,
    },
    "PredictRequest": {
        "type": "object",
        "properties": {
            "signature_name": _SIGNATURE,
            "instances": {
                "type": "array",
                "minItems": 1,
                "items": _VALUE,
                "description": "Rows: the value of the only input, or an object of all inputs.",
            },
            "inputs": {
                **_VALUE,
                "description": "Columns: the whole tensor of the only input, or an object of "
                "all inputs.",
            },
        },
        "oneOf": [{"required": ["instances"]}, {"required": ["inputs"]}],
    },
    "PredictAnswer": {
        "type": "object",
        "properties": {
            "predictions": {"type": "array", "description": "Answers `instances`."},
            "outputs": {"description": "Answers `inputs`."},
        },
    },
    "ExamplesRequest": {
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
        "properties": {"results": {"type": "array"}},
    },
    "LookupRequest": {
        "type": "object",
        "additionalProperties": False,
        "required": ["ids"],
        "properties": {
            "table": {**_STRING, "description": "May be left out if the model has one table."},
            "ids": {
                "type": "array",
                "items": {"oneOf": [_ID, {"type": "array", "items": _ID}]},
                "description": "Ids, or bags of ids. Integers may be written as strings.",
            },
            "combiner": {
                "enum": ["none", "sum", "mean", "sqrtn"],
                "default": "none",
                "description": "How the embeddings of a bag become one.",
            },
            "missing": {
                "enum": ["default", "error", "null"],
                "default": "default",
                "description": "What an unknown id reads as: its initial row, a 404, or null.",
            },
            "format": {
                "enum": ["list", "b64"],
                "default": "list",
                "description": "Numbers, or little-endian bytes in base64.",
            },
        },
    },
    "LookupAnswer": {
        "type": "object",
        "required": ["embeddings", "found"],
        "properties": {
            "embeddings": {
                "oneOf": [
                    {"type": "array"},
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
            "found": {"type": "array", "description": "Nested as `ids` is."},
        },
    },
    "InferRequest": {
        "type": "object",
        "required": ["inputs"],
        "properties": {
            "id": _STRING,
            "parameters": {"type": "object", "properties": {"signature_name": _SIGNATURE}},
            "inputs": {"type": "array", "items": _INFER_TENSOR},
            "outputs": {
                "type": "array",
                "items": {
                    "type": "object",
                    "required": ["name"],
                    "properties": {"name": _STRING},
                },
            },
        },
    },
    "InferAnswer": {
        "type": "object",
        "required": ["model_name", "model_version", "outputs"],
        "properties": {
            "id": _STRING,
            "model_name": _STRING,
            "model_version": _STRING,
            "outputs": {"type": "array", "items": _INFER_TENSOR},
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
