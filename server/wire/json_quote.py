"""Quotes JSON values in error messages, with TensorFlow Serving's layout."""

import json
import math
import re
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

_INDENT = "    "
_EXPONENT = re.compile(r"e\+?(-?)0*")
_quote_text = json.JSONEncoder(ensure_ascii=False).encode


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
    if value is None:
        return "Null"
    if isinstance(value, bool):
        return "True" if value else "False"
    if isinstance(value, dict):
        return "Object"
    if isinstance(value, list):
        return "Array"
    return "String" if isinstance(value, str) else "Number"
