"""JSON as TensorFlow Serving reads it, for bodies the fast decoders do not take.

Beyond the JSON standard it reads `NaN`, `Inf`, `Infinity` with either sign, skips a byte
order mark and ignores whatever follows the first value. A number beyond the range of a
double is an error. Nesting too deep for this process is an error too, never a crash.
"""

import json
import math
import re
from typing import Any

from server.errors import ServingError, invalid

# Spellings of numbers that Python's json does not know, and what it takes to tell whether
# one stands inside a string. One token at a time: a pattern that matched whole strings would
# take quadratic time on text with many unfinished ones.
_TOKEN = re.compile(r'\\.|"|-?\bInf\b|-NaN\b', re.DOTALL)
_OPENING = re.compile(rb"[ \t\r\n\[]*")
_STRUCTURE = re.compile(r'\\.|["\[\]{}]', re.DOTALL)
_OUT_OF_RANGE = "Number too big to be stored in double."
_EMPTY = "The document is empty."
_REASONS = {
    "Expecting value": "Invalid value.",
    "Expecting property name enclosed in double quotes": "Missing a name for object member.",
    "Illegal trailing comma before end of object": "Missing a name for object member.",
    "Illegal trailing comma before end of array": "Invalid value.",
    "Expecting ':' delimiter": "Missing a colon after a name of object member.",
    "Unterminated string starting": "Missing a closing quotation mark in string.",
    "Invalid control character": "Invalid encoding in string.",
    "Invalid \\escape": "Invalid escape character in string.",
    "Invalid \\uXXXX escape": "Incorrect hex digit after \\u escape in string.",
}


class _OutOfRangeError(ValueError):
    pass


def parse_json(body: bytes) -> dict[str, Any]:
    """Parses a request body whose top level must be an object.

    Raises:
        ServingError: INVALID_ARGUMENT, `JSON Parse error: …` for text that is not JSON,
            another sentence for a top level that is not an object.
    """
    value = parse_value(body)
    if not isinstance(value, dict):
        raise invalid(f"JSON Value: {debug_string(value)} Is not object")
    return value


def parse_value(body: bytes) -> Any:
    """Parses the first JSON value of `body`, of any type."""
    try:
        text = body.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise _parse_error("Invalid encoding in string.", error.start) from None
    start = len(text) - len(text.lstrip(" \t\r\n"))
    if start == len(text):
        raise _parse_error(_EMPTY, len(body))
    return _parse(text, start)


def _parse(text: str, start: int) -> Any:
    decoder = json.JSONDecoder(parse_float=_parse_float, parse_int=_parse_int, strict=True)
    try:
        try:
            return decoder.raw_decode(text, start)[0]
        except json.JSONDecodeError:
            rewritten = _with_python_spellings(text)
            if rewritten == text:
                raise
            return decoder.raw_decode(rewritten, start)[0]
    except json.JSONDecodeError as error:
        where = len(text[: error.pos].encode("utf-8", "replace"))
        raise _parse_error(_reason(error), where) from None
    except _OutOfRangeError:
        raise invalid(f"JSON Parse error: {_OUT_OF_RANGE}") from None
    except RecursionError:
        raise invalid("JSON Parse error: The document is nested too deeply.") from None


def _reason(error: json.JSONDecodeError) -> str:
    if error.msg != "Expecting ',' delimiter":
        return _REASONS.get(error.msg.removesuffix(" at"), "Invalid value.")
    # Python ends a number where it stops to be one.
    around = error.doc[max(0, error.pos - 1) : error.pos + 1]
    if around[:1].isdigit() and around[1:] in (".", "e", "E"):
        return "Miss fraction part in number." if around[1] == "." else "Miss exponent in number."
    if _innermost(error.doc, error.pos) == "{":
        return "Missing a comma or } after an object member."
    return "Missing a comma or ] after an array element."


def _innermost(text: str, end: int) -> str:
    """Returns the bracket that is open at a place of JSON text that is right so far."""
    opened: list[str] = []
    quoted = False
    for match in _STRUCTURE.finditer(text, 0, end):
        word = match[0]
        if word == '"':
            quoted = not quoted
        elif not quoted and word in "[{":
            opened.append(word)
        elif not quoted and word in "]}":
            opened.pop()
    return opened[-1] if opened else ""


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
        raise _OutOfRangeError
    return value


def _parse_int(digits: str) -> int | float:
    # Integers beyond 64 bits become doubles, as they do in TensorFlow Serving.
    return int(digits) if len(digits) <= 20 else _parse_float(digits)


def _parse_error(reason: str, offset: int) -> ServingError:
    return invalid(f"JSON Parse error: {reason} at offset: {offset}")


def leading_rank(text: memoryview | bytes) -> int:
    """Counts the brackets that JSON text opens before its first element."""
    match = _OPENING.match(text)
    return match[0].count(b"[") if match else 0


def first_element(text: memoryview | bytes) -> bytes:
    """Returns the character with which the first element of JSON text begins."""
    match = _OPENING.match(text)
    return bytes(text[match.end() : match.end() + 1]) if match else b""


def debug_string(value: Any, limit: int = 128) -> str:
    """Writes a parsed JSON value for an error message, cut to about `limit` characters."""
    encoder = json.JSONEncoder(ensure_ascii=False)
    text = ""
    try:
        for piece in encoder.iterencode(value):
            text += piece
            if len(text) > limit:
                return text[:limit] + "…"
    except RecursionError:
        return text[:limit] + "…"
    return text


def type_name(value: Any) -> str:
    """Names the JSON type of a parsed value, as TensorFlow Serving's messages do."""
    if value is None:
        return "Null"
    if isinstance(value, bool):
        return "True" if value else "False"
    if isinstance(value, dict):
        return "Object"
    if isinstance(value, list):
        return "Array"
    return "String" if isinstance(value, str) else "Number"
