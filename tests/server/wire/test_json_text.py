"""Nonstandard JSON that TensorFlow Serving accepts."""

import math

import pytest

from server.errors import ServingError
from server.wire.json_text import debug_string, parse_json, parse_value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (b"[NaN, Infinity, -Infinity]", [math.nan, math.inf, -math.inf]),
        (b"[-NaN, Inf, -Inf]", [math.nan, math.inf, -math.inf]),
        # Words inside strings stay.
        (b'["Inf and \\"-NaN\\" and Infinity", Inf]', ['Inf and "-NaN" and Infinity', math.inf]),
        # Text after the first value is ignored.
        *((b'{"a": 1}' + tail, {"a": 1}) for tail in (b"X", b"}", b" [1]", b"\x00")),
        # Pairs and escaped backslashes are no halves of a surrogate pair.
        (rb'["\ud83d\ude00 \\ud83d"] \ud83d', ["\N{GRINNING FACE} \\ud83d"]),
        # Integers beyond 64 bits are doubles.
        (b"[123456789012345678901]", [123456789012345678901.0]),
        (b"[18446744073709551615]", [2**64 - 1]),
    ],
)
def test_text_beyond_the_standard_has_a_value(text, value):
    assert repr(parse_value(text)) == repr(value)


UNCLOSED = "Missing a comma or a closing bracket after an element. at offset: "
HALF_A_PAIR = "The surrogate pair in string is invalid. at offset: "


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b"instances = [1, 2]", "Invalid value. at offset: 0"),
        (b'{"a": [1, 2', UNCLOSED + "11"),
        (b'{"a": ["]}", {}], "b": 2', UNCLOSED + "24"),
        (b'{"a": 1 "b": 2}', UNCLOSED + "8"),
        (b'{"a": ["\\"[" 2]}', UNCLOSED + "13"),
        (b'{"a": [1.]}', UNCLOSED + "8"),
        (b'{"a": [1e]}', UNCLOSED + "8"),
        (b'{"a": [1e+x]}', UNCLOSED + "8"),
        (b'{"a": [tru]}', "Invalid value. at offset: 7"),
        (b'{"a": [-]}', "Invalid value. at offset: 7"),
        (b'{"a": [+1]}', "Invalid value. at offset: 7"),
        (b'{"a": "\\q"}', "Invalid escape character in string. at offset: 7"),
        (b'{"a": "\\u12x4"}', "Incorrect hex digit after \\u escape in string. at offset: 8"),
        (b'{"a": "\\\\\\udc00"}', HALF_A_PAIR + "9"),
        (b'{"a": "\\ud83d\\u0041"}', HALF_A_PAIR + "7"),
        (b'{"a": "\\ud83d\\ude00\\ude00"}', HALF_A_PAIR + "19"),
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


@pytest.mark.parametrize("value", [list(range(10_000)), "x" * 10_000, {"a": ["b"] * 10_000}])
def test_quoted_values_are_cut(value):
    assert len(debug_string(value)) == 129


@pytest.mark.parametrize("filler", ['"', '\\"', '"a":', '["', "-", "Inf ", "[{"])
def test_hostile_text_takes_linear_time(filler):
    text = ('{"a": ' + filler * 200_000 + " Inf").encode()
    # The run of the tests names a test above 10 CPU seconds. Quadratic time would take minutes.
    with pytest.raises(ServingError):
        parse_json(text)
