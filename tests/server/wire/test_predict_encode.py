"""Answers of `:predict`: layout, numbers, strings, and tensors that cannot be encoded."""

from __future__ import annotations

import numpy as np
import pytest

from server.errors import ServingError
from server.wire.predict import Format, encode_predict


def rows(**outputs):
    return encode_predict(outputs, Format.ROW).decode()


def columns(**outputs):
    return encode_predict(outputs, Format.COLUMNAR).decode()


def strings(*values):
    array = np.empty(len(values), object)
    array[:] = values
    return array


def test_floats_have_a_point_and_no_noise():
    assert rows(y=np.array([0.2, 9e6, 3e-05, 1 / 3], np.float32)) == (
        '{"predictions":[0.2,9000000.0,0.00003,0.33333334]}'
    )


def test_non_finite_floats_are_bare_words_in_every_layout():
    bad = np.array([[np.nan, 1.0], [np.inf, -np.inf]], np.float32)
    assert rows(y=bad) == '{"predictions":[[NaN,1.0],[Infinity,-Infinity]]}'
    assert columns(y=bad) == '{"outputs":[[NaN,1.0],[Infinity,-Infinity]]}'
    assert rows(a=strings(b"null", b"x"), y=bad[:, 0]) == (
        '{"predictions":[{"a":"null","y":NaN},{"a":"x","y":Infinity}]}'
    )
    assert columns(y=np.array(np.nan)) == '{"outputs":NaN}'


def test_one_output_is_bare_and_several_are_objects():
    a, b = np.array([1, 2]), np.array([[True], [False]])
    assert rows(a=a) == '{"predictions":[1,2]}'
    assert rows(b=b, a=a) == '{"predictions":[{"a":1,"b":[true]},{"a":2,"b":[false]}]}'
    assert columns(b=b, a=a) == '{"outputs":{"a":[1,2],"b":[[true],[false]]}}'


def test_strings_are_text_or_base64_by_the_name():
    value = strings(b"a\x00", "é".encode())
    assert rows(s=value) == '{"predictions":["a\\u0000","é"]}'
    assert rows(s_bytes=value) == '{"predictions":[{"b64":"YQA="},{"b64":"w6k="}]}'


def test_bytes_that_are_no_text_are_base64_under_any_name():
    assert rows(s=strings(b"ok", b"\xff")) == '{"predictions":["ok",{"b64":"/w=="}]}'


def test_int64_as_strings():
    outputs = {"n": np.array([[2**53 + 1]]), "m": np.array([1], np.int32)}
    assert encode_predict(outputs, Format.ROW, int64_as_string=True) == (
        b'{"predictions":[{"m":1,"n":["9007199254740993"]}]}'
    )


def test_arrays_that_are_not_contiguous():
    table = np.arange(6, dtype=np.float32).reshape(2, 3)
    assert columns(y=table.T) == '{"outputs":[[0.0,3.0],[1.0,4.0],[2.0,5.0]]}'


def test_rows_of_no_shape_or_of_different_counts_are_refused():
    with pytest.raises(ServingError, match=r"^Tensor name: y has no shape information $"):
        rows(y=np.array(1))
    with pytest.raises(
        ServingError, match=r"^Tensor name: b has inconsistent batch size: 2 expecting: 1$"
    ):
        rows(a=np.array([1]), b=np.array([1, 2]))


def test_nothing_and_unwritable_types_are_refused():
    with pytest.raises(ServingError, match=r"^Cannot convert empty tensor map to JSON$"):
        rows()
    with pytest.raises(ServingError, match=r"^Failed to write JSON value for tensor type: complex"):
        columns(y=np.array([1j]))
