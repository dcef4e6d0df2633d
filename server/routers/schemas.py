"""Schemas of the OpenAPI document: pydantic models of answers, and schemas of bodies."""

from typing import Any, Literal

import msgspec
from pydantic import BaseModel, ConfigDict, Field

from ..tensors import DEFAULT_SIGNATURE
from ..wire.lookup import LookupBody
from ..wire.oip import InferBody

_SIGNATURE = {
    "type": "string",
    "default": DEFAULT_SIGNATURE,
    "description": "The signature to run.",
}
_TENSOR = (
    "A value, or nested lists of values of equal length: numbers, booleans, strings, or "
    '`{"b64": "…"}` for bytes.'
)
_FEATURES = {"type": "object", "description": "A value or a list of values by feature name."}

_, _BODIES = msgspec.json.schema_components(
    (LookupBody, InferBody), ref_template="#/components/schemas/{name}"
)
#: Schemas of request bodies by name. FastAPI does not know them, because it reads no tensors.
BODIES: dict[str, Any] = {
    **_BODIES,
    "B64": {
        "type": "object",
        "description": "Bytes that are not UTF-8, in base64.",
        "required": ["b64"],
        "properties": {"b64": {"type": "string", "contentEncoding": "base64"}},
        "additionalProperties": False,
    },
    "PredictBody": {
        "type": "object",
        "description": "Tensors for a signature: either `instances` or `inputs`. "
        "Other keys are ignored.",
        "properties": {
            "signature_name": _SIGNATURE,
            "instances": {
                "type": "array",
                "minItems": 1,
                "items": {"description": _TENSOR},
                "description": "Rows: the value of the only input, or an object of all inputs.",
            },
            "inputs": {
                "description": "Columns: the whole tensor of the only input, or an object of all "
                f"inputs. {_TENSOR}"
            },
            "shared": {
                "description": "Only for a signature with the input `row_splits`: an object with "
                "the inputs of one user, beside an instance per item. Or a list of users.",
            },
            "row_splits": {
                "type": "array",
                "items": {"type": "integer"},
                "description": "With a list of users: user i has the instances from the element i "
                "to the element i + 1.",
            },
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
    "IndexBody": {
        "type": "object",
        "properties": {
            "ready": {"type": "boolean", "description": "True to list only models that serve."}
        },
    },
}


class Error(BaseModel):
    """The answer to a request that failed."""

    error: str


class Object(BaseModel):
    """A JSON object."""

    model_config = ConfigDict(extra="allow")


class PredictAnswer(BaseModel):
    """The answer to `:predict`."""

    predictions: list[Any] = Field([], description="The answer to `instances`.")
    outputs: Any = Field(None, description="The answer to `inputs`.")


class ExamplesAnswer(BaseModel):
    """The answer to `:classify` and `:regress`."""

    results: list[Any]


class EncodedEmbeddings(BaseModel):
    """Embeddings as bytes in base64."""

    b64: str
    dtype: str
    shape: list[int]


class LookupAnswer(BaseModel):
    """The answer to `:lookup`."""

    embeddings: list[Any] | EncodedEmbeddings
    found: list[Any] = Field(description="Has the nesting of `ids`.")


class OutputTensor(BaseModel):
    """A tensor of the Open Inference Protocol."""

    model_config = ConfigDict(extra="allow")

    name: str
    datatype: str
    shape: list[int]
    data: list[Any] = Field([], description="The values, unless the tensor travels as bytes.")


class InferAnswer(BaseModel):
    """The answer to an inference."""

    model_config = ConfigDict(protected_namespaces=())

    id: str = ""
    model_name: str
    model_version: str
    outputs: list[OutputTensor]


class ServerMetadata(BaseModel):
    """The name of the server, its version, and the extensions of the Open Inference Protocol."""

    name: str
    version: str
    extensions: list[str]


class TensorMetadata(BaseModel):
    """An input or output of a model. A dimension of any size is -1."""

    name: str
    datatype: str
    shape: list[int]


class ModelMetadata(BaseModel):
    """A model's inputs and outputs, for clients of the Open Inference Protocol."""

    name: str
    versions: list[str]
    platform: str
    inputs: list[TensorMetadata]
    outputs: list[TensorMetadata]


class IndexEntry(BaseModel):
    """One version of a model in the repository's index."""

    name: str
    version: str
    state: Literal["READY", "LOADING", "UNAVAILABLE"]
    reason: str = ""


class VersionStatusError(BaseModel):
    """Why a version does not serve."""

    error_code: str = ""
    error_message: str = ""


class ModelVersionStatus(BaseModel):
    """The state of a version."""

    version: str
    state: Literal["START", "LOADING", "AVAILABLE", "UNLOADING", "END"]
    status: VersionStatusError


class ModelStatus(BaseModel):
    """The state of a model's versions."""

    model_config = ConfigDict(protected_namespaces=())

    model_version_status: list[ModelVersionStatus]


class Table(BaseModel):
    """An embedding table."""

    model_config = ConfigDict(extra="allow")

    table: str
    dim: int | None = None
    rows: int | None = None
    key_dtype: str = ""
    value_dtype: str = ""


class Tables(BaseModel):
    """The embedding tables of a model."""

    tables: list[Table]
