"""Examples of named features as serialized Example messages, which models accept unchanged.

A request may hold many examples. As `bytes` they cause no long garbage collections, which would
delay other requests: Python's garbage collector never visits `bytes`.
"""

import dataclasses
from collections.abc import Iterable
from typing import Any

from ..errors import invalid
from ..tensors import Array, Example
from ..wire.examples import decode_examples
from ..wire.limits import Limits
from ..wire.strings import bytes_array
from .modules import load_protos

_LISTS = {"bytes": "bytes_list", "float": "float_list", "int64": "int64_list"}


@dataclasses.dataclass(frozen=True)
class SerializedExamples:
    """A decoded `:classify` or `:regress` request.

    Attributes:
        signature_name: The signature to run.
        examples: Serialized Example messages as `bytes`, shape (examples,).
    """

    signature_name: str
    examples: Array


def read_json_examples(body: bytes, limits: Limits) -> SerializedExamples:
    """Reads the body of a `:classify` or `:regress` request; errors as `decode_examples`.

    Raises:
        ServingError: INVALID_ARGUMENT if the examples become too large with their context.
    """
    asked = decode_examples(body, limits)
    context = _serialize(asked.context) if asked.context is not None else b""
    return SerializedExamples(
        asked.signature_name, _joined(map(_serialize, asked.examples), context, limits)
    )


def read_input(message: Any, limits: Limits) -> Array:
    """Returns the examples of an Input message, serialized.

    Raises:
        ServingError: INVALID_ARGUMENT for no examples, too many, or too large ones.
    """
    context = b""
    listed = message.example_list
    if message.WhichOneof("kind") == "example_list_with_context":
        listed = message.example_list_with_context
        context = listed.context.SerializeToString()
    limits.check_examples(len(listed.examples))
    if not listed.examples:
        raise invalid("Input is empty.")
    return _joined((each.SerializeToString() for each in listed.examples), context, limits)


def _joined(examples: Iterable[bytes], context: bytes, limits: Limits) -> Array:
    """Puts the context before each example.

    protobuf merges messages whose bytes are concatenated. So a feature of the example replaces the
    context's feature of the same name.
    """
    texts = list(examples)
    if len(context) * len(texts) > limits.max_bytes:
        raise invalid(
            f"The context must take at most {limits.max_bytes} bytes, once per example. "
            f"Received: {len(context)} bytes for {len(texts)} examples"
        )
    if context:
        texts = [context + text for text in texts]
    return bytes_array(texts, (len(texts),))


def _serialize(example: Example) -> bytes:
    message = load_protos().example.Example()
    features = message.features.feature
    message.features.SetInParent()
    for name, feature in example.items():
        entry = features[name]
        if feature.kind:
            getattr(entry, _LISTS[feature.kind]).value.extend(feature.values)
    return bytes(message.SerializeToString())
