"""Bodies and answers of `:classify` and `:regress`."""

import tracemalloc

import numpy as np
import pytest

from server.errors import ServingError
from server.limits import Limits
from server.protos.examples import read_json_examples
from server.protos.modules import load_protos
from server.wire.predict import encode_classify, encode_regress


def decode(text: str):
    """Returns the signature, and the kind and values of each feature of each example."""
    name, examples = read_json_examples(text.encode(), Limits())
    return name, [features_of(each) for each in examples]


def features_of(example: bytes):
    found = {}
    for name, feature in load_protos().Example.FromString(example).features.feature.items():
        kind = feature.WhichOneof("kind") or ""
        found[name] = (kind, list(getattr(feature, kind).value) if kind else [])
    return found


@pytest.mark.parametrize("number", [2**64, -(2**63) - 1, 10**30])
def test_integers_beyond_64_bits_are_floats(number):
    _, (example,) = decode(f'{{"examples": [{{"a": {number}}}]}}')
    assert example == {"a": ("float_list", [np.float32(number)])}


def test_values_become_features_of_their_kind():
    name, examples = decode(
        '{"signature_name": "s", "context": {"q": "pizza", "n": 7}, "examples": [{}, '
        '{"n": [1, true], "f": [1.0, -Infinity], "b": ["x", {"b64": "/w=="}], "none": []}]}'
    )
    context = {"q": ("bytes_list", [b"pizza"]), "n": ("int64_list", [7])}
    assert name == "s"
    # A feature of the example replaces the context's feature of the same name.
    assert examples == [context, {
        **context, "n": ("int64_list", [1, 1]), "f": ("float_list", [1.0, -np.inf]),
        "b": ("bytes_list", [b"x", b"\xff"]), "none": ("", []),
    }]  # fmt: skip


MIXED = "Unexpected element type in feature: a expecting type: "


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"examples": [{"a": [1, 1.0]}]}', MIXED + "int64"),
        ('{"examples": [{"a": ["x", 1]}]}', MIXED + "bytes"),
        (
            '{"examples": [{"a": {"x": 1}}]}',
            "Feature: a has element with unexpected JSON type: Object",
        ),
        ('{"examples": [[1]]}', "Example must be JSON object but got JSON Array"),
        ('{"examples": [{}], "context": 1}', "Example must be JSON object but got JSON Number"),
    ],
)
def test_wrong_examples_are_refused(text, message):
    with pytest.raises(ServingError) as caught:
        decode(text)
    assert caught.value.message == message


def test_answers():
    labels = np.array([[b"car", b"bike"]], object)
    scores = np.array([[0.2, np.inf]], np.float32)
    assert encode_classify(labels, scores) == b'{"results":[[["car",0.2],["bike",Infinity]]]}'
    unscored = encode_classify(labels, np.zeros_like(scores))
    assert unscored == b'{"results":[[["car",0.0],["bike",0.0]]]}'
    assert encode_regress(np.array([1.0, np.nan], np.float32)) == b'{"results":[1.0,NaN]}'


def test_empty_answers_are_refused():
    with pytest.raises(ServingError, match=r"^Cannot convert empty ClassificationResults to JSON$"):
        encode_classify(np.zeros((0, 2), object), np.zeros((0, 2), np.float32))
    with pytest.raises(ServingError, match=r"^Cannot convert empty RegressionResults to JSON$"):
        encode_regress(np.zeros(0, np.float32))


def test_too_many_examples_are_refused_before_any_is_read():
    body = b'{"examples":[' + b",".join([b'{"age":1}'] * 500_000) + b"]}"
    tracemalloc.start()
    try:
        with pytest.raises(ServingError, match="at most 100000 examples"):
            read_json_examples(body, Limits())
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1 << 20
