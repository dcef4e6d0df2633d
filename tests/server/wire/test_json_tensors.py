"""Two parsers of JSON, and two ways to convert its values, return equal tensors or refuse."""

import json
from unittest import mock

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from server.errors import ServingError
from server.limits import Limits
from server.tensors import SignatureSpec, TensorSpec, dtype_of_name
from server.wire import json_tensors
from server.wire.predict import decode_predict

# Hypothesis fails a test that creates inputs slowly. Switch that off, for busy machines.
SLOW = [HealthCheck.too_slow]
DTYPES = ["int8", "uint8", "int32", "uint32", "int64", "uint64", "float", "half", "bool", "string"]

numbers = st.one_of(
    st.integers(-(2**65), 2**65),
    st.integers(-3, 3),
    st.floats(),
    st.sampled_from([2**31, 2**63, -(2**63), 2**64 - 1, 1.0, 1e308, 65519.0, 65520.0]),
)
scalars = st.one_of(
    numbers,
    st.booleans(),
    st.text(max_size=3),
    st.none(),
    st.sampled_from([{"b64": "eA=="}, {"b64": "e"}, {"b64": 1}, {"x": 1}, {}]),
)
values = st.recursive(scalars, lambda inner: st.lists(inner, max_size=3), max_leaves=8)
uniform = st.one_of(
    st.lists(st.integers(-3, 300), max_size=4),
    st.lists(st.lists(numbers, min_size=2, max_size=2), min_size=1, max_size=3),
    st.lists(st.text(max_size=3), min_size=1, max_size=3),
)
objects = st.dictionaries(st.sampled_from(["a", "b", "c", "b64"]), st.one_of(values, uniform))
bodies = st.one_of(values, uniform, objects, st.lists(objects, min_size=1, max_size=3))
signatures = st.dictionaries(
    st.sampled_from(["a", "b", "b64"]),
    st.tuples(st.sampled_from(DTYPES), st.sampled_from([None, (None,), (None, 2), ()])),
    min_size=1,
    max_size=2,
).map(
    lambda inputs: SignatureSpec(
        "s",
        {name: TensorSpec(name, dtype_of_name(d), shape) for name, (d, shape) in inputs.items()},
        {},
    )
)


def outcome(body, signature):
    try:
        request = decode_predict(body, {"serving_default": signature}, Limits())
    except ServingError as error:
        return error.code, error.message
    return (
        request.key,
        [(name, str(a.dtype), a.shape, a.tolist()) for name, a in sorted(request.inputs.items())],
    )


@settings(max_examples=300, deadline=None, suppress_health_check=SLOW)
@given(signatures, st.sampled_from(["instances", "inputs"]), bodies)
def test_both_parsers_and_both_ways_to_convert_agree(signature, key, value):
    body = json.dumps({key: value}).encode()
    fast = outcome(body, signature)
    # Only the slower parser ignores bytes after the body.
    assert repr(outcome(body + b" X", signature)) == repr(fast)
    with mock.patch.object(json_tensors, "_even", return_value=None):
        assert repr(outcome(body, signature)) == repr(fast)


@pytest.mark.parametrize("tail", [b"", b" X"])
def test_bytes_alone_are_no_row_of_a_model_with_two_inputs(tail):
    inputs = {name: TensorSpec(name, dtype_of_name("string"), (None,)) for name in ("a", "b")}
    body = json.dumps({"instances": [{"b64": "eA=="}]}).encode()
    _, message = outcome(body + tail, SignatureSpec("s", inputs, {}))
    assert "expecting list of objects" in message
