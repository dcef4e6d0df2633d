"""Examples of named features as serialized Example messages, which models accept unchanged.

A request may hold many examples. As `bytes` they cause no long garbage collections, which would
delay other requests: Python's garbage collector never visits `bytes`.
"""

from collections.abc import Iterable
from typing import Any

from ..errors import invalid
from ..limits import Limits
from ..tensors import Array
from ..wire.json_text import parse_json, type_name, wrong_value
from ..wire.predict import signature_name
from ..wire.tensor_bytes import bytes_array, decode_b64, is_b64_object
from .modules import load_protos


def read_json_examples(body: bytes, limits: Limits) -> tuple[str, Array]:
    """Reads the body of a `:classify` or `:regress` request.

    Returns:
        The signature to run, and serialized Example messages as `bytes`, shape (examples,).

    Raises:
        ServingError: INVALID_ARGUMENT for a body that is not JSON, has no examples, or has
            features whose values mix kinds or are not numbers, booleans or strings; or for
            examples that become too large with their context.
    """
    limits.check_elements(body)
    limits.check_objects(body)
    document = parse_json(body)
    name = signature_name(document)
    context = _serialize(document["context"]) if "context" in document else b""
    if "examples" not in document:
        raise wrong_value(
            document, "When method is classify, key 'examples' is expected and was not found"
        )
    examples = document["examples"]
    if not isinstance(examples, list):
        raise wrong_value(document, "Expecting 'examples' value to be an list/array")
    if not examples:
        raise wrong_value(document, "'examples' value is an empty array")
    limits.check_count(len(examples), "examples")
    return name, _joined(map(_serialize, examples), context, limits)


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
    limits.check_count(len(listed.examples), "examples")
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


def _serialize(value: Any) -> bytes:
    """Returns the Example message of a JSON object."""
    if not isinstance(value, dict):
        raise invalid(f"Example must be JSON object but got JSON {type_name(value)}")
    message = load_protos().Example()
    message.features.SetInParent()
    for name, content in value.items():
        feature = message.features.feature[name]
        expected, items = "", []
        for each in content if isinstance(content, list) else [content]:
            kind, item = _kind_and_item(name, each)
            if expected not in ("", kind):
                raise invalid(
                    f"Unexpected element type in feature: {name} expecting type: {expected}"
                )
            expected = kind
            items.append(item)
        if expected:
            getattr(feature, f"{expected}_list").value.extend(items)
    return bytes(message.SerializeToString())


def _kind_and_item(name: str, value: Any) -> tuple[str, Any]:
    if isinstance(value, bool):
        return "int64", int(value)
    if isinstance(value, int):
        if 2**63 <= value < 2**64:
            raise invalid(f"Feature: {name} has uint64_t element. Only int64_t is supported.")
        return ("int64", value) if -(2**63) <= value < 2**63 else ("float", float(value))
    if isinstance(value, float):
        return "float", value
    if isinstance(value, str):
        return "bytes", value.encode()
    if is_b64_object(value):
        return "bytes", decode_b64(value["b64"])
    raise invalid(f"Feature: {name} has element with unexpected JSON type: {type_name(value)}")
