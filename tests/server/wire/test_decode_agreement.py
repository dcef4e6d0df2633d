"""The typed decoders and the reference decoder return equal tensors, or both refuse."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from server.errors import ServingError
from server.tensors import SignatureSpec, TensorSpec, dtype_of_name
from server.wire.limits import Limits
from server.wire.predict import decode_predict, decode_predict_by_reference

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


def outcome(decode, body, signature):
    try:
        request = decode(body, lambda _: signature, Limits())
    except ServingError as error:
        return error.code, error.message
    return (
        request.format,
        [(name, str(a.dtype), a.shape, a.tolist()) for name, a in sorted(request.inputs.items())],
    )


def test_bytes_alone_are_no_row_of_a_model_with_two_inputs():
    inputs = {name: TensorSpec(name, dtype_of_name("string"), (None,)) for name in ("a", "b")}
    body = json.dumps({"instances": [{"b64": "eA=="}]}).encode()
    for decode in (decode_predict, decode_predict_by_reference):
        with pytest.raises(ServingError, match="expecting list of objects"):
            decode(body, lambda _: SignatureSpec("s", inputs, {}), Limits())


@settings(max_examples=300, deadline=None, suppress_health_check=SLOW)
@given(signatures, st.sampled_from(["instances", "inputs"]), bodies)
def test_decoders_agree(signature, key, value):
    body = json.dumps({key: value}).encode()
    fast = outcome(decode_predict, body, signature)
    slow = outcome(decode_predict_by_reference, body, signature)
    assert repr(fast) == repr(slow)


def arrays(dtype):
    if dtype == "bool":
        element = st.booleans()
    elif dtype.startswith("f"):
        element = st.floats(width=int(dtype[5:]), allow_nan=True)
    else:
        info = np.iinfo(dtype)
        element = st.integers(int(info.min), int(info.max))
    return st.lists(st.lists(element, min_size=2, max_size=2), min_size=1, max_size=4).map(
        lambda v: np.array(v, dtype)
    )


ROUND_TRIPS = {
    "int8": "int8", "uint8": "uint8", "int16": "int16", "int32": "int32", "uint32": "uint32",
    "int64": "int64", "uint64": "uint64", "half": "float16", "float": "float32",
    "double": "float64", "bool": "bool",
}  # fmt: skip


@pytest.mark.parametrize(("name", "numpy_name"), ROUND_TRIPS.items())
def test_every_number_survives_json(name, numpy_name):
    from server.wire.predict import Format, encode_predict

    signature = SignatureSpec("s", {"x": TensorSpec("x", dtype_of_name(name), (None, 2))}, {})

    @settings(max_examples=40, deadline=None, suppress_health_check=SLOW)
    @given(arrays(numpy_name))
    def check(array):
        for layout, answered, asked in (
            (Format.ROW, b'"predictions"', b'"instances"'),
            (Format.COLUMNAR, b'"outputs"', b'"inputs"'),
        ):
            body = encode_predict({"x": array}, layout).replace(answered, asked)
            again = decode_predict(body, lambda _: signature, Limits()).inputs["x"]
            assert again.dtype == array.dtype
            np.testing.assert_array_equal(again, array)

    check()


@settings(max_examples=200, deadline=None, suppress_health_check=SLOW)
@given(st.lists(st.binary(max_size=6), min_size=1, max_size=5), st.booleans())
def test_every_byte_string_survives_json(elements, as_bytes):
    from server.wire.predict import Format, encode_predict

    name = "x_bytes" if as_bytes else "x"
    signature = SignatureSpec("s", {name: TensorSpec(name, dtype_of_name("string"), (None,))}, {})
    array = np.empty(len(elements), object)
    array[:] = elements
    body = encode_predict({name: array}, Format.ROW).replace(b'"predictions"', b'"instances"')
    again = decode_predict(body, lambda _: signature, Limits()).inputs[name]
    assert again.tolist() == elements


@settings(max_examples=300, deadline=None, suppress_health_check=SLOW)
@given(st.binary(max_size=40))
def test_any_bytes_are_decoded_or_refused(body):
    signature = SignatureSpec("s", {"x": TensorSpec("x", dtype_of_name("float"), (None,))}, {})
    outcome(decode_predict, body, signature)
    outcome(decode_predict, b'{"instances": ' + body, signature)
