"""Every decoder of bytes from outside, with random input: an answer or a refusal."""

import importlib.util
import json
import math
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from server.limits import Limits
from server.tensors import DTYPES, DType, Kind, SignatureSpec, TensorSpec, dtype_of_name
from server.wire.oip import InferRequest, RequestParameters, decode_infer, encode_infer
from server.wire.predict import decode_predict, encode_predict
from server.wire.tensor_bytes import bytes_array
from tests.server.support.fuzz_decoders import SEEDS, TARGETS, feed
from tests.server.support.gateway_process import run
from tests.support.applies import applies_if

NAMES = [dtype.name for dtype in DTYPES if dtype.kind is not Kind.OTHER]
assert len(NAMES) == 14
SHAPES = hnp.array_shapes(min_dims=1, max_dims=4, min_side=1, max_side=3)

json_text = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(-(2**65), 2**65), st.floats(), st.text(max_size=5)
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(
            st.sampled_from(["instances", "inputs", "x", "b64", "ids", "table", "examples", "data",
                             "name", "shape", "datatype", "signature_name", "weights"]),
            inner, max_size=4,
        ),
    ),
    max_leaves=12,
).map(lambda value: json.dumps(value).encode())  # fmt: skip


@pytest.mark.parametrize("target", TARGETS)
@settings(max_examples=150, deadline=None)
@given(data=st.one_of(json_text, st.binary(max_size=200)))
def test_a_decoder_answers_or_refuses(target, data):
    feed(target, data)


@settings(max_examples=400, deadline=None)
@given(damage=st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255)), max_size=4))
@pytest.mark.parametrize("target", ["infer-bytes", "infer-message"])
def test_a_damaged_request_is_refused_or_read(target, damage):
    request = bytearray(SEEDS[target][0])
    for place, value in damage:
        request[place % len(request)] = value
    feed(target, bytes(request))


def arrays_of(dtype: DType, shape):
    if dtype.name == "string":
        elements = st.one_of(st.binary(max_size=6), st.text(max_size=4).map(str.encode))
        return st.lists(elements, min_size=math.prod(shape), max_size=math.prod(shape)).map(
            lambda values: bytes_array(values, shape)
        )
    if dtype.name == "bfloat16":
        return hnp.arrays(np.uint16, shape).map(lambda bits: bits.view(dtype.numpy))
    return hnp.arrays(dtype.numpy, shape)


def assert_same(got, want):
    assert got.dtype == want.dtype
    assert got.shape == want.shape
    if want.dtype.kind == "O":
        assert got.tolist() == want.tolist()
    else:
        # Compare bfloat16 as float32, which is exact. Converting its signalling NaN to float64
        # would warn.
        wide = np.float32 if want.dtype.kind == "V" else want.dtype
        np.testing.assert_array_equal(got.astype(wide), want.astype(wide))


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_every_type_and_shape_survives_json_and_back(name, data):
    dtype = dtype_of_name(name)
    array = data.draw(arrays_of(dtype, data.draw(SHAPES)))
    signature = SignatureSpec("s", {"x": TensorSpec("x", dtype, None)}, {})
    for told, key in (("predictions", b"instances"), ("outputs", b"inputs")):
        body = encode_predict({"x": array}, told).replace(told.encode(), key, 1)
        for tail in (b"", b" X"):  # the second body needs the slower parser
            request = decode_predict(body + tail, {"serving_default": signature}, Limits())
            assert_same(request.inputs["x"], array)


@pytest.mark.each_choice
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("binary", [False, True])
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_every_type_and_shape_survives_the_inference_protocol(name, binary, data):
    dtype = dtype_of_name(name)
    array = data.draw(arrays_of(dtype, data.draw(SHAPES)))
    asked = InferRequest({}, {"x": binary}, RequestParameters(), None)
    parts, length = encode_infer("m", 1, asked, {"x": array})
    body = parts if isinstance(parts, bytes) else b"".join(parts)
    header = None if length is None else str(length - 1).encode()
    again = decode_infer(body.replace(b"outputs", b"inputs", 1), header, Limits())
    assert_same(again.inputs["x"], array)


def test_the_fuzzers_seeds_are_valid_requests():
    assert SEEDS.keys() == TARGETS.keys()
    for target, seeds in SEEDS.items():
        # These targets feed one input to several decoders, some of which refuse the seed.
        if target not in ("lookup", "ids", "head"):
            for seed in seeds:
                TARGETS[target](seed)


@pytest.mark.slow
@applies_if(importlib.util.find_spec("atheris"), "atheris (pip install atheris)")
@pytest.mark.parametrize("target", TARGETS)
def test_fuzzing_by_coverage_finds_nothing(target, tmp_path):
    # The system charges a program with the memory of the process that started it, so a shell does.
    shell = ["sh", "-c", '"$@"; exit $?', "sh"]
    fuzz = [*shell, sys.executable, "-m", "tests.server.support.fuzz_decoders", target, tmp_path]
    bounds = ["-max_total_time=20", "-rss_limit_mb=2000", "-timeout=5", "-max_len=2000"]
    run(*fuzz, *bounds, seconds=120)
