"""The JSON of an inference request in the Open Inference Protocol.

The structs decode requests, and the OpenAPI document is generated from them.
"""

from typing import Annotated, Any

import msgspec

from ..tensors import DEFAULT_SIGNATURE, DTYPES
from .lookup import Combiner, Missing

# The element types by the protocol's datatype, sorted: an error and the OpenAPI document list them.
BY_DATATYPE = dict(sorted((dtype.datatype, dtype) for dtype in DTYPES if dtype.datatype))


class TensorParameters(msgspec.Struct):
    """Parameters of an input or output."""

    binary_data_size: Annotated[
        int | None, msgspec.Meta(description="Size of the input's bytes, which follow the JSON.")
    ] = None
    binary_data: Annotated[
        bool | None, msgspec.Meta(description="True to get the output as bytes.")
    ] = None
    # The gateway supports neither of these. They are declared so that it can refuse them.
    classification: int = 0
    shared_memory_region: str = ""


class InputTensor(msgspec.Struct):
    """An input in JSON."""

    name: str
    datatype: Annotated[str, msgspec.Meta(extra_json_schema={"enum": list(BY_DATATYPE)})]
    shape: list[Annotated[int, msgspec.Meta(extra_json_schema={"minimum": 0})]]
    data: Annotated[
        Any,
        msgspec.Meta(
            description="Flat in row-major order, or nested. Omitted if bytes follow the JSON.",
            extra_json_schema={"type": "array", "items": {}},
        ),
    ] = msgspec.UNSET
    parameters: TensorParameters = msgspec.field(default_factory=TensorParameters)


class RequestedOutput(msgspec.Struct):
    """A requested output."""

    name: str
    parameters: TensorParameters = msgspec.field(default_factory=TensorParameters)


class RequestParameters(msgspec.Struct):
    """Parameters of a request. `combiner` and `missing` are for lookups, as in `:lookup`."""

    signature_name: Annotated[str, msgspec.Meta(description="The signature to run.")] = (
        DEFAULT_SIGNATURE
    )
    binary_data_output: Annotated[
        bool,
        msgspec.Meta(description="True to get outputs as bytes by default."),
    ] = False
    combiner: Combiner = "none"
    missing: Missing = "default"


class InferBody(msgspec.Struct):
    """The JSON of an inference request."""

    inputs: list[InputTensor]
    id: str | None = None
    outputs: list[RequestedOutput] = []
    parameters: RequestParameters = msgspec.field(default_factory=RequestParameters)
