"""Turns keys and values of rows into plain Python and text."""

from __future__ import annotations

from typing import Any

from de_core_cli import terminal


def plain(value: Any) -> Any:
    """Returns a key or an element as a JSON value. Bytes that are not UTF-8 become their repr."""
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return repr(value)
    return value.item() if value.dtype.kind in "biu" else float(value)


def short(value: Any) -> str:
    """Returns an element as text, with the 9 digits that identify a float32."""
    return f"{value:.9g}" if isinstance(value, float) else terminal.shown(value)


def key_of(text: str, key_dtype: str, name: str) -> Any:
    """Returns the key that a command line argument names.

    Args:
        text: The argument.
        key_dtype: "int64" or "string".
        name: The file's name, for the error.

    Raises:
        ValueError: The file has integer keys, and the argument is no integer of 64 bits.
    """
    if key_dtype == "string":
        return text.encode("utf-8", "surrogateescape")
    try:
        number = int(text)
    except ValueError:
        number = 1 << 63
    if not -(1 << 63) <= number < 1 << 63:
        raise ValueError(
            f"Keys of {name!r} must be integers of 64 bits. Received: --key {text!r}. "
            "Choose another table by --table."
        )
    return number
