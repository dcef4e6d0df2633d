"""Converts bytes of gRPC requests to plain Python, and answers to bytes.

These functions take and return plain data, so another process can run them for large messages.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from ..errors import invalid
from ..limits import Limits
from ..tensors import CLASSIFY_METHOD, DEFAULT_SIGNATURE, REGRESS_METHOD, Array, DType
from .examples import read_input
from .modules import load_protos
from .tensors import fill_typed, to_array


@dataclasses.dataclass(frozen=True)
class Target:
    """The model in a message, with a version number, a label, or neither.

    Attributes:
        name: The model's name.
        version: The version's number, if the message names one.
        label: The version's label, if the message names one.
        signature: The signature to run.
    """

    name: str
    version: int | None
    label: str | None
    signature: str


def target_of(message: Any) -> Target:
    """Reads a ModelSpec message; refuses one without a name."""
    if not message.name:
        raise invalid("Missing ModelSpec")
    choice = message.WhichOneof("version_choice")
    return Target(
        message.name,
        message.version.value if choice == "version" else None,
        message.version_label if choice == "version_label" else None,
        message.signature_name or DEFAULT_SIGNATURE,
    )


@dataclasses.dataclass(frozen=True)
class PredictMessage:
    """A decoded PredictRequest.

    Attributes:
        target: The requested model and signature.
        inputs: The tensors, with their element types as numbers of `DataType`.
        output_filter: The requested outputs, each once; all if empty.
    """

    target: Target
    inputs: dict[str, tuple[int, Array]]
    output_filter: list[str]


def parse(kind: Any, body: bytes) -> Any:
    """Parses a message of the given type.

    Raises:
        ServingError: INVALID_ARGUMENT if the bytes are no such message.
    """
    from google.protobuf.message import DecodeError

    try:
        return kind.FromString(body)
    except DecodeError:
        raise invalid(f"The request must be a {kind.DESCRIPTOR.name}") from None


def read_predict(body: bytes, limits: Limits) -> PredictMessage:
    """Reads a PredictRequest; raises as `to_array`, and INVALID_ARGUMENT beyond a limit."""
    message = parse(load_protos().predict.PredictRequest, body)
    target = target_of(message.model_spec)
    claimed = 0
    for proto in message.inputs.values():
        limits.check_rank(len(proto.tensor_shape.dim))
        count = 1
        for dim in proto.tensor_shape.dim:
            count *= max(0, dim.size)
        claimed += count
    limits.check_count(claimed)
    inputs = {name: (proto.dtype, to_array(proto)) for name, proto in message.inputs.items()}
    return PredictMessage(target, inputs, list(dict.fromkeys(message.output_filter)))


def write_predict(
    target: Target, version: int, outputs: Mapping[str, tuple[DType, Array]]
) -> bytes:
    """Writes a PredictResponse."""
    response = load_protos().predict.PredictResponse()
    fill_target(response.model_spec, target, version)
    for name, (dtype, array) in outputs.items():
        fill_typed(response.outputs[name], array, dtype)
    return bytes(response.SerializeToString())


def fill_target(message: Any, target: Target, version: int) -> None:
    """Writes the answering model and version into a ModelSpec message."""
    message.name = target.name
    message.version.value = version
    message.signature_name = target.signature


@dataclasses.dataclass(frozen=True)
class Task:
    """One task of a request on examples: its model, and the method name of TensorFlow Serving."""

    target: Target
    method_name: str


def read_examples(kind: str, body: bytes, limits: Limits) -> tuple[list[Task], Array]:
    """Reads a ClassificationRequest, RegressionRequest or MultiInferenceRequest.

    Args:
        kind: `Classification`, `Regression` or `MultiInference`.
        body: Its bytes.
        limits: Limits on the request.

    Returns:
        The request's tasks, and its serialized examples.
    """
    message = parse(getattr(_module(kind), f"{kind}Request"), body)
    if kind == "MultiInference":
        tasks = [Task(target_of(task.model_spec), task.method_name) for task in message.tasks]
    else:
        method = CLASSIFY_METHOD if kind == "Classification" else REGRESS_METHOD
        tasks = [Task(target_of(message.model_spec), method)]
    return tasks, read_input(message.input, limits)


def _module(kind: str) -> Any:
    protos = load_protos()
    modules = {"Classification": protos.classification, "Regression": protos.regression}
    return modules.get(kind, protos.inference)


@dataclasses.dataclass(frozen=True)
class ExamplesResult:
    """The answer of one task's model.

    Attributes:
        target: The model of the request.
        version: The version that answered.
        classes: Labels and scores, if the task was to classify.
        values: Values of shape (examples,), if it was to regress.
    """

    target: Target
    version: int
    classes: tuple[Array | None, Array | None] | None = None
    values: Array | None = None


def write_examples(kind: str, results: Sequence[ExamplesResult]) -> bytes:
    """Writes a ClassificationResponse, RegressionResponse or MultiInferenceResponse.

    Args:
        kind: `Classification`, `Regression` or `MultiInference`.
        results: One result, or several for a MultiInferenceResponse.
    """
    response = getattr(_module(kind), f"{kind}Response")()
    if kind == "MultiInference":
        for result in results:
            entry = response.results.add()
            _fill_result(entry, "classification_result", "regression_result", result)
    else:
        _fill_result(response, "result", "result", results[0])
    return bytes(response.SerializeToString())


def _fill_result(message: Any, classes: str, values: str, result: ExamplesResult) -> None:
    fill_target(message.model_spec, result.target, result.version)
    if result.values is not None:
        regressions = getattr(message, values).regressions
        for value in result.values.tolist():
            regressions.add().value = value
    if result.classes is None:
        return
    # Labels and scores have the same shape, (examples, classes). One of them may be None.
    columns = [None if part is None else part.tolist() for part in result.classes]
    for row in range(len(columns[0] or columns[1] or ())):
        labels, scores = [None if part is None else part[row] for part in columns]
        entries = getattr(message, classes).classifications.add().classes
        for column in range(len(labels or scores or ())):
            entry = entries.add()
            if labels is not None:
                entry.label = labels[column].decode(errors="replace")
            if scores is not None:
                entry.score = scores[column]
