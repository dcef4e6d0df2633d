"""The Open Inference Protocol, version 2, in JSON: tensors with type and shape written out."""

import dataclasses
import math
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
import orjson

from server.errors import Code, ServingError, invalid
from server.tensors import DEFAULT_SIGNATURE, Array, DType, Kind, SignatureSpec, TensorSpec
from server.wire import fast_decode, reference_decode
from server.wire.encode import json_ready
from server.wire.json_text import parse_json
from server.wire.limits import Limits
from server.wire.predict import FindSignature

_DATATYPES = {
    "bool": "BOOL",
    "uint8": "UINT8",
    "uint16": "UINT16",
    "uint32": "UINT32",
    "uint64": "UINT64",
    "int8": "INT8",
    "int16": "INT16",
    "int32": "INT32",
    "int64": "INT64",
    "half": "FP16",
    "bfloat16": "BF16",
    "float": "FP32",
    "double": "FP64",
    "string": "BYTES",
}


class _Input(msgspec.Struct):
    name: str
    datatype: str
    shape: list[int]
    data: msgspec.Raw


class _Output(msgspec.Struct):
    name: str


class _Parameters(msgspec.Struct):
    signature_name: str = DEFAULT_SIGNATURE


class _Request(msgspec.Struct):
    inputs: list[_Input]
    id: str | None = None
    outputs: list[_Output] = []
    parameters: _Parameters = msgspec.field(default_factory=_Parameters)


_REQUEST = msgspec.json.Decoder(_Request)


@dataclasses.dataclass(frozen=True)
class InferRequest:
    """A decoded request.

    Attributes:
        signature: Which signature to run.
        inputs: On what.
        outputs: The outputs wanted; all if empty.
        id: Comes back with the answer.
    """

    signature: SignatureSpec
    inputs: dict[str, Array]
    outputs: tuple[str, ...]
    id: str | None


def decode_infer(body: bytes, find: FindSignature, limits: Limits) -> InferRequest:
    """Decodes the body of an inference request.

    Args:
        body: The body.
        find: Returns the signature of a name; raises `ServingError` if there is none.
        limits: Bounds on the request.

    Raises:
        ServingError: INVALID_ARGUMENT, naming the input.
    """
    limits.check_elements(body)
    request = _envelope(body)
    signature = find(request.parameters.signature_name)
    names = [tensor.name for tensor in request.inputs]
    if sorted(names) != sorted(signature.inputs):
        raise invalid(
            f"inputs must be {', '.join(sorted(signature.inputs)) or 'empty'}, each once. "
            f"Received: {', '.join(names)[:128]}"
        )
    wanted = tuple(output.name for output in request.outputs)
    for name in wanted:
        if name not in signature.outputs:
            raise invalid(
                f"outputs must be of {', '.join(sorted(signature.outputs))}. Received: {name[:128]}"
            )
    inputs = {
        tensor.name: _tensor(tensor, signature.inputs[tensor.name], limits)
        for tensor in request.inputs
    }
    return InferRequest(signature, inputs, wanted, request.id)


def _envelope(body: bytes) -> _Request:
    try:
        return _REQUEST.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        document = parse_json(body)  # Names an error of syntax and its place; takes NaN.
    try:
        return msgspec.convert(_with_raw_data(document), _Request)
    except (msgspec.ValidationError, RecursionError) as error:
        raise invalid(
            "An inference request must be an object with `inputs`, each with `name`, `datatype`, "
            f"`shape` and `data`. Received: {error}"
        ) from None


def _with_raw_data(document: Mapping[str, Any]) -> dict[str, Any]:
    inputs = document.get("inputs")
    if not isinstance(inputs, list):
        return dict(document)
    raw = [
        {**each, "data": msgspec.Raw(_json(each["data"]))}
        if isinstance(each, dict) and "data" in each
        else each
        for each in inputs
    ]
    return {**document, "inputs": raw}


def _json(value: Any) -> bytes:
    # Python's writer keeps NaN and the infinities, as the reader took them.
    import json

    return json.dumps(value).encode()


def _tensor(tensor: _Input, spec: TensorSpec, limits: Limits) -> Array:
    wanted = _DATATYPES.get(spec.dtype.name)
    if tensor.datatype != wanted:
        raise invalid(
            f"Input {tensor.name} must have datatype {wanted or spec.dtype.enum_name}. "
            f"Received: datatype={tensor.datatype[:128]}"
        )
    limits.check_rank(len(tensor.shape))
    count = math.prod(tensor.shape)
    if any(size < 0 for size in tensor.shape) or count > limits.max_elements:
        raise invalid(
            f"Input {tensor.name} must have a shape of at most {limits.max_elements} values. "
            f"Received: shape={tensor.shape}"
        )
    array = _data(tensor, spec.dtype, limits)
    if array.size != count:
        raise invalid(
            f"Input {tensor.name} must have {count} values for its shape. "
            f"Received: {array.size} values"
        )
    return array.reshape(tensor.shape)


def _data(tensor: _Input, dtype: DType, limits: Limits) -> Array:
    view = memoryview(tensor.data)
    try:
        return fast_decode.decode_value(view, dtype, limits)
    except fast_decode.FastPathMissError:
        pass
    value = parse_json(b'{"data":' + bytes(view) + b"}")["data"]
    try:
        return reference_decode.decode_value(value, dtype, limits)
    except ServingError as error:
        raise ServingError(error.code, f"Input {tensor.name}: {error.message}") from None


def encode_infer(
    model: str, version: int, request: InferRequest, outputs: Mapping[str, Array]
) -> bytes:
    """Encodes the answer to an inference request: data in row-major order, not nested."""
    names = request.outputs or tuple(sorted(outputs))
    answer: dict[str, Any] = {
        "model_name": model,
        "model_version": str(version),
        "outputs": [_output(name, outputs[name], request.signature) for name in names],
    }
    if request.id is not None:
        answer["id"] = request.id
    return orjson.dumps(answer, option=orjson.OPT_SERIALIZE_NUMPY)


def _output(name: str, array: Array, signature: SignatureSpec) -> dict[str, Any]:
    spec = signature.outputs.get(name)
    datatype = _DATATYPES.get(spec.dtype.name) if spec else None
    if datatype is None:
        raise ServingError(Code.UNIMPLEMENTED, f"Output {name} has no datatype of this protocol")
    return {
        "name": name,
        "datatype": datatype,
        "shape": list(array.shape),
        "data": json_ready(name, array.reshape(-1)),
    }


def encode_model(model: str, versions: Iterable[int], signature: SignatureSpec) -> bytes:
    """Encodes a model's metadata: the inputs and outputs of one signature."""
    return orjson.dumps(
        {
            "name": model,
            "versions": [str(version) for version in versions],
            "platform": "tensorflow_savedmodel",
            "inputs": _specs(signature.inputs),
            "outputs": _specs(signature.outputs),
        }
    )


def _specs(specs: Mapping[str, TensorSpec]) -> list[dict[str, Any]]:
    return [
        {
            "name": name,
            "datatype": _DATATYPES.get(spec.dtype.name, spec.dtype.enum_name),
            "shape": [-1 if size is None else size for size in spec.shape or ()],
        }
        for name, spec in sorted(specs.items())
        if spec.dtype.kind is not Kind.OTHER
    ]
