"""Nonstandard JSON that TensorFlow Serving accepts."""

import math

import pytest

from server.errors import ServingError
from server.wire.json_text import debug_string, parse_json, parse_value


def test_nonstandard_json_is_accepted():
    value = parse_json(b'{"a": [NaN, Infinity, -Infinity, Inf, -Inf, -NaN]}')["a"]
    assert [math.isnan(v) for v in value] == [True, False, False, False, False, True]
    assert value[1:5] == [math.inf, -math.inf, math.inf, -math.inf]


def test_words_inside_strings_stay():
    text = b'{"a": "Inf and \\"-NaN\\" and Infinity", "b": Inf}'
    assert parse_json(text) == {"a": 'Inf and "-NaN" and Infinity', "b": math.inf}


@pytest.mark.parametrize("tail", [b"X", b"}", b" [1]", b"\x00"])
def test_text_after_the_first_value_is_ignored(tail):
    assert parse_json(b'{"a": 1}' + tail) == {"a": 1}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b"instances = [1, 2]", "Invalid value. at offset: 0"),
        (b'{"a": [1, 2', "Missing a comma or a closing bracket after an element. at offset: 11"),
        (
            b'{"a": ["]}", {}], "b": 2',
            "Missing a comma or a closing bracket after an element. at offset: 24",
        ),
        (b'{"a": 1 "b": 2}', "Missing a comma or a closing bracket after an element. at offset: 8"),
        (
            b'{"a": ["\\"[" 2]}',
            "Missing a comma or a closing bracket after an element. at offset: 13",
        ),
        (b'{"a": [1.]}', "Missing a comma or a closing bracket after an element. at offset: 8"),
        (b'{"a": [1e]}', "Missing a comma or a closing bracket after an element. at offset: 8"),
        (b'{"a": [1e+x]}', "Missing a comma or a closing bracket after an element. at offset: 8"),
        (b'{"a": [tru]}', "Invalid value. at offset: 7"),
        (b'{"a": [-]}', "Invalid value. at offset: 7"),
        (b'{"a": [+1]}', "Invalid value. at offset: 7"),
        (b'{"a": "\\q"}', "Invalid escape character in string. at offset: 7"),
        (b'{"a": "\\u12x4"}', "Incorrect hex digit after \\u escape in string. at offset: 8"),
        (b'{"a": "\\\\\\udc00"}', "The surrogate pair in string is invalid. at offset: 9"),
        (b'{"a": "\\ud83d\\u0041"}', "The surrogate pair in string is invalid. at offset: 7"),
        (
            b'{"a": "\\ud83d\\ude00\\ude00"}',
            "The surrogate pair in string is invalid. at offset: 19",
        ),
        (b'{"a": ["b]}', "Missing a closing quotation mark in string. at offset: 7"),
        (b'{"a": "b\tc"}', "Invalid encoding in string. at offset: 8"),
        (b'{"a"; 1}', "Missing a colon after a name of object member. at offset: 4"),
        ('{"é": x}'.encode(), "Invalid value. at offset: 7"),
        (b'{"a": ["1e400", 1e400]}', "Number too big to be stored in double. at offset: 16"),
        (b'{"a": ' + b"9" * 400 + b"}", "Number too big to be stored in double. at offset: 6"),
        (b"[" * 500_000, "The document is nested too deeply."),
        (b'{"a":' * 500_000, "The document is nested too deeply."),
    ],
)
def test_text_that_is_not_json_is_named(text, reason):
    with pytest.raises(ServingError) as caught:
        parse_json(text)
    assert caught.value.message == f"JSON Parse error: {reason}"


def test_a_trailing_comma_is_named():
    # Python versions differ in the reported place: the comma, or the character after it.
    with pytest.raises(ServingError, match=r"Missing a name for object member\. at offset: [78]$"):
        parse_json(b'{"a": 1,}')


def test_pairs_and_escaped_backslashes_are_no_halves():
    text = rb'{"a": "\ud83d\ude00 \\ud83d"} \ud83d'
    assert parse_json(text) == {"a": "\N{GRINNING FACE} \\ud83d"}


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"a": [1, {"b": [{}, [], {"c": "ü/"}]}], "d": {}}, """{
    "a": [1, {
            "b": [{}, [], {
                    "c": "ü/"
                }]
        }],
    "d": {}
}"""),
        (100.0, "100.0"),
        (1e20, "100000000000000000000.0"),
        (1.5e21, "1.5e21"),
        (0.00001, "0.00001"),
        (1.5e-7, "1.5e-7"),
        (-math.inf, "-Infinity"),
    ],
)  # fmt: skip
def test_values_are_quoted_as_the_real_server_quotes_them(value, text):
    assert debug_string(value, 1000) == text


def test_integers_beyond_64_bits_are_doubles():
    assert parse_value(b"[123456789012345678901]") == [123456789012345678901.0]
    assert parse_value(b"[18446744073709551615]") == [2**64 - 1]


@pytest.mark.parametrize("value", [list(range(10_000)), "x" * 10_000, {"a": ["b"] * 10_000}])
def test_quoted_values_are_cut(value):
    assert len(debug_string(value)) == 129


@pytest.mark.parametrize("filler", ['"', '\\"', '"a":', '["', "-", "Inf ", "[{"])
def test_hostile_text_takes_linear_time(filler):
    text = ('{"a": ' + filler * 200_000 + " Inf").encode()
    # The run of the tests names a test above 10 CPU seconds. Quadratic time would take minutes.
    with pytest.raises(ServingError):
        parse_json(text)
