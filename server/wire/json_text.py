"""Parses JSON as TensorFlow Serving does, for bodies that msgspec refuses.

In addition to standard JSON it reads `NaN`, `Inf`, `Infinity` with either sign, skips a byte order
mark and ignores everything after the first value. A number beyond the range of a double is an
error. Nesting that is too deep for this process is also an error, not a crash.

`debug_string` quotes JSON values in error messages, with TensorFlow Serving's layout.
"""

import json
import math
import re
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

from ..errors import ServingError, invalid

# Matches words for numbers that Python's json does not know. It also matches quotes and escapes,
# from which the caller knows whether a word is inside a string. A pattern for whole strings would
# take quadratic time on text with many unterminated strings.
_TOKEN = re.compile(r'\\.|"|-?\bInf\b|-NaN\b', re.DOTALL)
_STRING_OR_NUMBER = re.compile(r'"(?:[^"\\]|\\.)*"|-?[0-9][0-9.eE+-]*', re.DOTALL)
# A surrogate pair, half of one, or another escape.
_ESCAPE = re.compile(
    r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F]|(\\u[dD][89a-fA-F])|\\.", re.DOTALL
)
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
_OUT_OF_RANGE = "Number too big to be stored in double."
# RapidJSON's error message for each message of Python's json module that has an equivalent.
_REASONS = {
    "Expecting value": "Invalid value.",
    "Expecting property name enclosed in double quotes": "Missing a name for object member.",
    "Illegal trailing comma before end of object": "Missing a name for object member.",
    "Illegal trailing comma before end of array": "Invalid value.",
    "Expecting ',' delimiter": "Missing a comma or a closing bracket after an element.",
    "Expecting ':' delimiter": "Missing a colon after a name of object member.",
    "Unterminated string starting": "Missing a closing quotation mark in string.",
    "Invalid control character": "Invalid encoding in string.",
    "Invalid \\escape": "Invalid escape character in string.",
    "Invalid \\uXXXX escape": "Incorrect hex digit after \\u escape in string.",
}

_TYPE_NAMES = {type(None): "Null", dict: "Object", list: "Array", str: "String"}
_INDENT = "    "
_EXPONENT = re.compile(r"e\+?(-?)0*")
_quote_text = json.JSONEncoder(ensure_ascii=False).encode


class _OutOfRangeError(ValueError):
    """A number is out of range. The argument is its text."""


def parse_json(body: bytes) -> dict[str, Any]:
    """Parses a request body whose top level must be an object.

    Raises:
        ServingError: INVALID_ARGUMENT, `JSON Parse error: …` for text that is not JSON,
            another sentence for a top level that is not an object.
    """
    value = parse_value(body)
    if not isinstance(value, dict):
        raise wrong_value(value, "Is not object")
    return value


def parse_value(body: bytes) -> Any:
    """Parses the first JSON value of `body`, of any type."""
    try:
        text = body.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise _parse_error("Invalid encoding in string.", error.start) from None
    if not body:
        raise invalid("JSON Parse error: The document is empty")
    start = len(text) - len(text.lstrip(" \t\r\n"))
    if start == len(text):
        raise _parse_error("The document is empty.", len(body))
    decoder = json.JSONDecoder(parse_float=_parse_float, parse_int=_parse_int, strict=True)
    try:
        try:
            value, end = decoder.raw_decode(text, start)
        except json.JSONDecodeError:
            rewritten = _with_python_spellings(text)
            if rewritten == text:
                raise
            text = rewritten
            value, end = decoder.raw_decode(text, start)
    except json.JSONDecodeError as error:
        reason = _REASONS.get(error.msg.removesuffix(" at"), "Invalid value.")
        raise _parse_error(reason, _bytes_before(error.doc, error.pos)) from None
    except _OutOfRangeError as error:
        place = next(
            match.start()
            for match in _STRING_OR_NUMBER.finditer(text, start)
            if match[0].startswith(error.args[0])
        )
        raise _parse_error(_OUT_OF_RANGE, _bytes_before(text, place)) from None
    except RecursionError:
        raise invalid("JSON Parse error: The document is nested too deeply.") from None
    if _SURROGATE.search(text, start, end):  # half of a pair is no character
        for match in _ESCAPE.finditer(text, start, end):
            if match[1]:
                place = _bytes_before(text, match.start())
                raise _parse_error("The surrogate pair in string is invalid.", place)
    return value


def _bytes_before(text: str, place: int) -> int:
    return len(text[:place].encode("utf-8", "replace"))


def _with_python_spellings(text: str) -> str:
    pieces = []
    start = 0
    quoted = False
    for match in _TOKEN.finditer(text):
        word = match[0]
        if word == '"':
            quoted = not quoted
        elif not quoted and word[0] != "\\":
            spelling = "NaN" if word == "-NaN" else word.replace("Inf", "Infinity")
            pieces += [text[start : match.start()], spelling]
            start = match.end()
    return "".join([*pieces, text[start:]])


def _parse_float(digits: str) -> float:
    value = float(digits)
    if math.isinf(value):
        raise _OutOfRangeError(digits)
    return value


def _parse_int(digits: str) -> int | float:
    # Integers beyond 64 bits become doubles, as in TensorFlow Serving.
    return int(digits) if len(digits) <= 20 else _parse_float(digits)


def _parse_error(reason: str, offset: int) -> ServingError:
    return invalid(f"JSON Parse error: {reason} at offset: {offset}")


def wrong_value(value: Any, text: str) -> ServingError:
    """Returns the error for a parsed JSON value. `text` says what is wrong with it."""
    return invalid(f"JSON Value: {debug_string(value)} {text}")


def debug_string(value: Any, limit: int = 128) -> str:
    """Writes a parsed JSON value for an error message, cut to about `limit` characters.

    Each member of an object gets its own line, and the elements of a list share one. TensorFlow
    Serving's RapidJSON `PrettyWriter` with `kFormatSingleLineArray` does the same.
    """
    text = ""
    for piece in _pieces(value, 1, limit):
        text += piece
        if len(text) > limit:
            return text[:limit] + "…"
    return text


def _pieces(value: Any, level: int, limit: int) -> Iterator[str]:
    if isinstance(value, dict) and value:
        separator = "{\n"
        for key, item in value.items():
            yield f"{separator}{_INDENT * level}{_quote_text(key[:limit])}: "
            yield from _pieces(item, level + 1, limit)
            separator = ",\n"
        yield f"\n{_INDENT * (level - 1)}}}"
    elif isinstance(value, list) and value:
        separator = "["
        for item in value:
            yield separator
            yield from _pieces(item, level + 1, limit)
            separator = ", "
        yield "]"
    elif isinstance(value, float):
        yield _float(value)
    else:
        yield _quote_text(value[: limit + 1] if isinstance(value, str) else value)


def _float(value: float) -> str:
    text = _quote_text(value)
    if "e" not in text or not math.isfinite(value):
        return text
    if 1e-6 <= abs(value) < 1e21:
        digits = f"{Decimal(text):f}"
        return digits if "." in digits else digits + ".0"
    return _EXPONENT.sub(r"e\1", text)


def type_name(value: Any) -> str:
    """Returns the JSON type of a parsed value, as TensorFlow Serving's messages name it."""
    if isinstance(value, bool):
        return str(value)
    return _TYPE_NAMES.get(type(value), "Number")
