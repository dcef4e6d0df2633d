"""Converts bytes of gRPC requests to plain Python, and answers to bytes; and the other way round.

These functions take and return plain data, so another process can run them for large messages.
"""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..errors import invalid
from ..limits import Limits
from ..request import ModelSpec
from ..tensors import CLASSIFY_METHOD, DEFAULT_SIGNATURE, REGRESS_METHOD, Array, Tensors
from .examples import read_input
from .modules import load_protos, parse
from .tensors import fill_proto, fill_typed, to_array


@dataclasses.dataclass(frozen=True)
class Target(ModelSpec):
    """The model in a message, and what to run of it.

    Attributes:
        signature: The signature to run.
        method_name: TensorFlow Serving's name of the method to run on examples.
    """

    signature: str = DEFAULT_SIGNATURE
    method_name: str = ""


def target_of(message: Any, method_name: str = "") -> Target:
    """Reads a ModelSpec message; refuses one without a name."""
    if not message.name:
        raise invalid("Missing ModelSpec")
    choice = message.WhichOneof("version_choice")
    return Target(
        message.name,
        message.version.value if choice == "version" else None,
        message.version_label if choice == "version_label" else None,
        message.signature_name or DEFAULT_SIGNATURE,
        method_name,
    )


def read_predict(body: bytes, limits: Limits) -> tuple[Target, dict[str, Array], list[str]]:
    """Reads a PredictRequest; raises as `to_array`, and INVALID_ARGUMENT beyond a limit.

    Returns:
        The model and signature; the tensors; and the requested outputs, each once, or none for all.
    """
    message = parse(load_protos().PredictRequest, body)
    target = target_of(message.model_spec)
    claimed = repeated = 0
    for proto in message.inputs.values():
        limits.check_rank(len(proto.tensor_shape.dim))
        count = math.prod(max(0, dim.size) for dim in proto.tensor_shape.dim)
        claimed += count
        if strings := proto.string_val:
            repeated += len(strings[-1]) * max(0, count - len(strings))
    limits.check_count(claimed)
    if repeated > limits.max_bytes:
        raise invalid(
            f"Strings that repeat to fill tensors must take at most {limits.max_bytes} bytes: "
            f"send them in parts. Received: {repeated} bytes"
        )
    inputs = {name: to_array(proto) for name, proto in message.inputs.items()}
    return target, inputs, list(dict.fromkeys(message.output_filter))


def write_predict(target: Target, version: int, outputs: Tensors) -> bytes:
    """Writes a PredictResponse."""
    response = load_protos().PredictResponse()
    fill_target(response.model_spec, target, version)
    for name, array in outputs.items():
        fill_typed(response.outputs[name], array)
    return bytes(response.SerializeToString())


def write_model(model: str, version: int | None, signature: str) -> bytes:
    """Writes the model of a request. Without a version the server runs its newest one.

    protobuf merges messages whose bytes are concatenated, and later values replace earlier ones. So
    the bytes of `write_inputs` followed by these bytes are a PredictRequest.
    """
    message = load_protos().PredictRequest()
    message.model_spec.name = model
    if version is not None:
        message.model_spec.version.value = version
    message.model_spec.signature_name = signature
    return bytes(message.SerializeToString())


def write_inputs(inputs: Tensors) -> bytes:
    """Writes the inputs of a PredictRequest."""
    message = load_protos().PredictRequest()
    for name, array in inputs.items():
        fill_proto(message.inputs[name], array)
    return bytes(message.SerializeToString())


def read_outputs(body: bytes) -> tuple[int, dict[str, Array]]:
    """Reads the version and the tensors of a PredictResponse; raises as `parse`."""
    message = parse(load_protos().PredictResponse, body)
    outputs = {name: to_array(proto) for name, proto in message.outputs.items()}
    return int(message.model_spec.version.value), outputs


def fill_target(message: Any, target: Target, version: int) -> None:
    """Writes the answering model and version into a ModelSpec message."""
    message.name = target.name
    message.version.value = version
    message.signature_name = target.signature


def read_examples(kind: str, body: bytes, limits: Limits) -> tuple[list[Target], Array]:
    """Reads a ClassificationRequest, RegressionRequest or MultiInferenceRequest.

    `kind` is `Classification`, `Regression` or `MultiInference`.

    Returns:
        The models to run, and the request's serialized examples.
    """
    message = parse(getattr(load_protos(), f"{kind}Request"), body)
    if kind == "MultiInference":
        targets = [target_of(task.model_spec, task.method_name) for task in message.tasks]
    else:
        method = CLASSIFY_METHOD if kind == "Classification" else REGRESS_METHOD
        targets = [target_of(message.model_spec, method)]
    return targets, read_input(message.input, limits)


# A model, the version that answered, and its answer: labels and scores of shape (examples,
# classes), or values of shape (examples,).
ExamplesResult = tuple[Target, int, tuple[Array, ...]]


def write_examples(kind: str, results: Sequence[ExamplesResult]) -> bytes:
    """Writes a ClassificationResponse, RegressionResponse or MultiInferenceResponse.

    Args:
        kind: `Classification`, `Regression` or `MultiInference`.
        results: One result, or several for a MultiInferenceResponse.
    """
    response = getattr(load_protos(), f"{kind}Response")()
    for target, version, found in results:
        of_classes = len(found) == 2
        if kind == "MultiInference":
            message = response.results.add()
            result = message.classification_result if of_classes else message.regression_result
        else:
            message, result = response, response.result
        fill_target(message.model_spec, target, version)
        for row in zip(*map(np.ndarray.tolist, found), strict=True):
            if of_classes:
                entries = result.classifications.add().classes
                for label, score in zip(*row, strict=True):
                    entries.add(label=label.decode(errors="replace"), score=score)
            else:
                result.regressions.add(value=row[0])
    return bytes(response.SerializeToString())
