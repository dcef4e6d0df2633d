"""Converts examples with named features to and from Example messages."""

from collections.abc import Sequence
from typing import Any

from server.tensors import Example, Feature

_LISTS = {"bytes": "bytes_list", "float": "float_list", "int64": "int64_list"}
_KINDS = {field: kind for kind, field in _LISTS.items()}


def fill_input(message: Any, examples: Sequence[Example], context: Example | None) -> None:
    """Writes examples and their shared context into an empty Input message."""
    if context is None:
        target = message.example_list.examples
    else:
        target = message.example_list_with_context.examples
        _fill(message.example_list_with_context.context, context)
    for example in examples:
        _fill(target.add(), example)


def read_input(message: Any) -> tuple[list[Example], Example | None]:
    """Returns the examples of an Input message, and the shared context or None."""
    if message.WhichOneof("kind") == "example_list_with_context":
        shared = message.example_list_with_context
        return [_read(example) for example in shared.examples], _read(shared.context)
    return [_read(example) for example in message.example_list.examples], None


def _fill(message: Any, example: Example) -> None:
    features = message.features.feature
    message.features.SetInParent()
    for name, feature in example.items():
        entry = features[name]
        if feature.kind:
            getattr(entry, _LISTS[feature.kind]).value.extend(feature.values)


def _read(message: Any) -> Example:
    example = {}
    for name, entry in message.features.feature.items():
        field = entry.WhichOneof("kind")
        values = list(getattr(entry, field).value) if field else []
        example[name] = Feature(_KINDS.get(field, ""), values)
    return example
