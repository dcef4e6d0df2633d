"""The gateway reads and writes the JSON of cases restated from TensorFlow Serving's own tests.

The kinds of cases: `predict_ok` has a body and its tensors; `response_ok` has tensors and their
JSON; `classify_regress_ok`, `classify_result` and `regress_result` are the same for examples;
`path_ok` has a path and its parts.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from server.errors import Code, ServingError
from server.limits import Limits
from server.protos.examples import read_json_examples
from server.protos.modules import load_protos
from server.request import ModelSpec
from server.tensors import SignatureSpec, TensorSpec, dtype_of_name
from server.wire.paths import parse_path
from server.wire.predict import decode_predict, encode_classify, encode_predict, encode_regress
from tests.support.applies import applies_if

CORPUS = Path(__file__).resolve().parents[2].parent / "shared" / "conformance" / "rest_cases.jsonl"
# The key of an answer by the corpus's name of its form.
KEYS = {"row": "predictions", "columnar": "outputs"}


def corpus() -> list[dict[str, Any]]:
    if not CORPUS.exists():
        return []
    return [json.loads(line) for line in CORPUS.read_text().splitlines() if line.strip()]


CASES = corpus()

pytestmark = applies_if(CASES, "the cases of TensorFlow Serving's tests beside the checkout")


def of_kind(kind: str) -> Any:
    chosen = [pytest.param(case, id=case["id"]) for case in CASES if case["kind"] == kind]
    assert bool(chosen) == bool(CASES)
    return pytest.mark.parametrize("case", chosen)


def number(value: Any) -> Any:
    return float(value.replace("Infinity", "inf")) if isinstance(value, str) else value


def array(tensor: dict[str, Any]) -> np.ndarray:
    dtype = dtype_of_name(tensor["dtype"])
    flat = np.empty(len(tensor["values"]), dtype.numpy)
    strings = dtype.name == "string"
    flat[:] = [v.encode() if strings else number(v) for v in tensor["values"]]
    return flat.reshape(tensor["shape"])


def body_of(case: dict[str, Any]) -> bytes:
    body = case["body"]
    if isinstance(body, str):
        return body.encode()
    parts = (part if isinstance(part, str) else part[0] * part[1] for part in body["repeat"])
    return "".join(parts).encode()


# Only the slower parser ignores bytes after the body.
@pytest.mark.parametrize("tail", [b"", b" X"])
@of_kind("predict_ok")
def test_predict_bodies_are_decoded(case, tail):
    name = case.get("signature", "serving_default")
    inputs = {n: TensorSpec(n, dtype_of_name(d), None) for n, d in case["inputs"].items()}
    signatures = {name: SignatureSpec(name, inputs, {})}
    try:
        request = decode_predict(body_of(case) + tail, signatures, Limits())
    except ServingError as error:
        if case.get("may_reject") and error.code is Code.INVALID_ARGUMENT:
            return
        raise
    assert request.key == KEYS[case["format"]]
    assert request.inputs.keys() == case["tensors"].keys()
    for name, tensor in case["tensors"].items():
        want, got = array(tensor), request.inputs[name]
        assert got.dtype == want.dtype
        assert got.shape == want.shape
        np.testing.assert_array_equal(got, want)


@of_kind("response_ok")
def test_responses_are_encoded(case):
    tensors = {name: array(tensor) for name, tensor in case["tensors"].items()}
    for key in ("row", "columnar"):
        text = encode_predict(tensors, KEYS[key]).decode()
        if key in case:
            assert typed(json.loads(text)) == typed(case[key])
        if f"{key}_text" in case:
            assert repr(json.loads(text)) == repr(json.loads(case[f"{key}_text"]))
            for word in ("NaN", "Infinity"):
                assert text.count(word) == case[f"{key}_text"].count(word)


def typed(value: Any) -> Any:
    """Returns values with their types, so that 1.0 and 1 differ, which Python's == ignores."""
    if isinstance(value, list):
        return [typed(item) for item in value]
    if isinstance(value, dict):
        return {key: typed(item) for key, item in value.items()}
    return type(value).__name__, value


@of_kind("classify_regress_ok")
def test_examples_bodies_are_decoded(case):
    name, examples = read_json_examples(body_of(case), Limits())
    assert name == case.get("signature", "serving_default")
    assert [example_json(example) for example in examples] == [
        {
            feature: as_float32(value)
            for feature, value in {**case.get("context", {}), **each}.items()
        }
        for each in case["examples"]
    ]


def example_json(example: bytes) -> dict[str, Any]:
    features = load_protos().Example.FromString(example).features.feature
    found = {}
    for name, feature in features.items():
        kind = feature.WhichOneof("kind") or ""
        values = getattr(feature, kind).value if kind else []
        found[name] = {kind.removesuffix("_list"): [feature_json(value) for value in values]}
    return found


def as_float32(feature: dict[str, list[Any]]) -> dict[str, list[Any]]:
    """Rounds floats as an Example message does."""
    values = feature.get("float", [])
    rounded = [float(np.float32(v)) if isinstance(v, float) else v for v in values]
    return {**feature, "float": rounded} if "float" in feature else feature


def feature_json(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, float) and not np.isfinite(value):
        return json.dumps(value)
    return value


@of_kind("classify_result")
def test_classify_results_are_encoded(case):
    labels = np.array([[k.encode() for k, _ in row] for row in case["classifications"]], object)
    scores = np.array([[v for _, v in row] for row in case["classifications"]], np.float32)
    assert json.loads(encode_classify(labels, scores)) == case["json"]


@of_kind("regress_result")
def test_regress_results_are_encoded(case):
    values = np.array([number(value) for value in case["values"]], np.float32)
    text = encode_regress(values).decode()
    want = case["json_text"] if "json_text" in case else json.dumps(case["json"])
    assert repr(json.loads(text)) == repr(json.loads(want))


@of_kind("path_ok")
def test_path_parts(case):
    def parse():
        return parse_path(case["method"], case["path"].encode())

    if case.get("status") == 400:
        with pytest.raises(ServingError, match=r"^Malformed request: "):
            parse()
        return
    route = parse()
    assert route.spec == ModelSpec(case["model"], case.get("version"), case.get("label"))
    assert route.verb == case.get("verb", case.get("subresource", "status"))
