"""The gRPC messages of the Open Inference Protocol, and their tensors."""

import functools
from typing import Any

import msgspec

from ..errors import invalid, unimplemented
from ..limits import Limits
from ..tensors import Array, DType, Kind, Tensors
from ..wire.json_tensors import numeric_array
from ..wire.oip import InferRequest, RequestParameters, add_input, datatype_of
from ..wire.tensor_bytes import array_of_bytes, bytes_array, octets
from .modules import load_protos, parse

SERVICE = "inference.GRPCInferenceService"


def read_infer(body: bytes, limits: Limits) -> tuple[str, str, InferRequest]:
    """Reads a ModelInferRequest.

    Returns:
        The names of model and version, and the request.

    Raises:
        ServingError: INVALID_ARGUMENT, naming the input; UNIMPLEMENTED for shared memory.
    """
    message = parse(load_protos().ModelInferRequest, body)
    raw = message.raw_input_contents
    if raw and len(raw) != len(message.inputs):
        raise invalid(
            "raw_input_contents must hold the bytes of every input, or of none. "
            f"Received: {len(raw)} for {len(message.inputs)} inputs"
        )
    inputs: dict[str, Array] = {}
    for index, tensor in enumerate(message.inputs):
        _check_here(tensor)
        if raw:
            read = functools.partial(array_of_bytes, memoryview(raw[index]))
        else:
            read = functools.partial(_typed, tensor)
        add_input(inputs, tensor, read, limits)
    limits.check_tensors(inputs)
    for output in message.outputs:
        _check_here(output)
    told = {
        name: getattr(value, value.WhichOneof("parameter_choice") or "", None)
        for name, value in message.parameters.items()
    }
    outputs = {output.name: True for output in message.outputs}
    try:
        parameters = msgspec.convert(told, RequestParameters)
    except msgspec.ValidationError as error:
        raise invalid(
            f"A request's parameters must have the documented types. Received: {error}"
        ) from None
    request = InferRequest(inputs, outputs, parameters, message.id or None)
    return message.model_name, message.model_version, request


def write_infer(model: str, version: int, request: InferRequest, outputs: Tensors) -> bytes:
    """Writes a ModelInferResponse, its tensors as raw bytes."""
    response = load_protos().ModelInferResponse(
        model_name=model, model_version=str(version), id=request.id or ""
    )
    for name in request.outputs or sorted(outputs):
        array = outputs[name]
        response.outputs.add(name=name, datatype=datatype_of(name, array), shape=array.shape)
        response.raw_output_contents.append(octets(array).tobytes())
    return bytes(response.SerializeToString())


def _typed(tensor: Any, dtype: DType, _: int) -> Array:
    if not dtype.contents:
        raise invalid(f"values of {dtype.datatype} must come as raw bytes")
    values = getattr(tensor.contents, dtype.contents)
    if dtype.kind is Kind.STRING:
        return bytes_array(list(values), (len(values),))
    return numeric_array(values, dtype)


def _check_here(tensor: Any) -> None:
    for name in ("shared_memory_region", "classification"):
        if name in tensor.parameters:
            raise unimplemented(f"Tensor {tensor.name[:128]} must not have the parameter {name}")
