"""Bodies of `:classify` and `:regress` requests and answers."""

import dataclasses
from typing import Any

import orjson

from ..errors import invalid
from ..tensors import Array, Example, Feature
from .encode import float_json
from .json_quote import debug_string, type_name
from .json_text import parse_json
from .limits import Limits
from .predict import signature_name
from .strings import decode_b64, is_b64_object


@dataclasses.dataclass(frozen=True)
class ExamplesRequest:
    """A decoded request: the examples, and their shared context."""

    signature_name: str
    examples: list[Example]
    context: Example | None


def decode_examples(body: bytes, limits: Limits) -> ExamplesRequest:
    """Decodes the body of a `:classify` or `:regress` request.

    Raises:
        ServingError: INVALID_ARGUMENT for a body that is not JSON, has no examples, or has
            features whose values mix kinds or are not numbers, booleans or strings.
    """
    limits.check_elements(body)
    limits.check_objects(body)
    document = parse_json(body)
    name = signature_name(document)
    context = _example(document["context"]) if "context" in document else None
    if "examples" not in document:
        raise invalid(
            f"JSON Value: {debug_string(document)} When method is classify, key 'examples' "
            "is expected and was not found"
        )
    examples = document["examples"]
    if not isinstance(examples, list):
        raise invalid(
            f"JSON Value: {debug_string(document)} Expecting 'examples' value to be an list/array"
        )
    if not examples:
        raise invalid(f"JSON Value: {debug_string(document)} 'examples' value is an empty array")
    limits.check_examples(len(examples))
    return ExamplesRequest(name, [_example(example) for example in examples], context)


def _example(value: Any) -> Example:
    if not isinstance(value, dict):
        raise invalid(f"Example must be JSON object but got JSON {type_name(value)}")
    features = {}
    for name, content in value.items():
        feature = features[name] = Feature()
        for item in content if isinstance(content, list) else [content]:
            _add(feature, name, item)
    return features


def _add(feature: Feature, name: str, value: Any) -> None:
    kind, item = _kind_and_item(name, value)
    if feature.kind not in ("", kind):
        raise invalid(f"Unexpected element type in feature: {name} expecting type: {feature.kind}")
    feature.kind = kind
    feature.values.append(item)


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


def encode_classify(classes: Array | None, scores: Array | None) -> bytes:
    """Encodes classifications as lists of `[label, score]` pairs, one list per example.

    Args:
        classes: Labels as `bytes`, shape (examples, classes); None if the model has none.
        scores: Scores, same shape; None if the model has none.

    Raises:
        ServingError: INVALID_ARGUMENT if there is nothing to encode.
    """
    shape = classes.shape if classes is not None else scores.shape if scores is not None else (0,)
    if not shape[0]:
        raise invalid("Cannot convert empty ClassificationResults to JSON")
    results = [
        [
            [
                classes[i, j].decode(errors="replace") if classes is not None else "",
                float_json(scores[i, j]) if scores is not None else 0.0,
            ]
            for j in range(shape[1])
        ]
        for i in range(shape[0])
    ]
    return orjson.dumps({"results": results}, option=orjson.OPT_SERIALIZE_NUMPY)


def encode_regress(values: Array) -> bytes:
    """Encodes one value per example; `values` has shape (examples,)."""
    if not len(values):
        raise invalid("Cannot convert empty RegressionResults to JSON")
    return orjson.dumps({"results": float_json(values)}, option=orjson.OPT_SERIALIZE_NUMPY)
