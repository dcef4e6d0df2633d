"""Requests to model servers as bytes, and tensors from their answers.

These functions take and return plain data, so another process can run them for large messages.
"""

from ..tensors import Array, Tensors
from .modules import load_protos, parse
from .tensors import fill_proto, to_array


def write_model(model: str, version: int | None, signature: str) -> bytes:
    """Writes the model of a request. Without a version the server runs its newest one.

    protobuf merges messages whose bytes are concatenated, and later values replace earlier ones. So
    the bytes of `write_inputs` followed by these bytes are a PredictRequest.
    """
    message = load_protos().predict.PredictRequest()
    message.model_spec.name = model
    if version is not None:
        message.model_spec.version.value = version
    message.model_spec.signature_name = signature
    return bytes(message.SerializeToString())


def write_inputs(inputs: Tensors) -> bytes:
    """Writes the inputs of a PredictRequest."""
    message = load_protos().predict.PredictRequest()
    for name, array in inputs.items():
        fill_proto(message.inputs[name], array)
    return bytes(message.SerializeToString())


def read_outputs(body: bytes) -> tuple[int, dict[str, Array]]:
    """Reads the version and the tensors of a PredictResponse; raises as `parse`."""
    message = parse(load_protos().predict.PredictResponse, body)
    outputs = {name: to_array(proto) for name, proto in message.outputs.items()}
    return int(message.model_spec.version.value), outputs
