"""Checks of arguments and of the mode, and the `Received: …` part of their errors."""

from __future__ import annotations

import numbers
from typing import Any

import tensorflow as tf

_LARGEST = 2**62


def received(**values: Any) -> str:
    """Returns the second half of an error message: the arguments as received.

    Returns:
        A sentence such as ``Received: dim=0 (of type int).``

    Example:
    >>> received(dim=0)
    'Received: dim=0 (of type int).'
    """
    listed = ", ".join(
        f"{name}={value!r} (of type {type(value).__name__})" for name, value in values.items()
    )
    return f"Received: {listed}."


def check_integer(
    name: str, value: Any, least: int, most: int = _LARGEST, *, or_none: bool = False
) -> None:
    """Raises unless an argument is a whole number from `least` to `most`, or None if it may be."""
    if or_none and value is None:
        return
    is_integer = isinstance(value, numbers.Integral) and not isinstance(value, bool)
    if is_integer and least <= int(value) <= most:
        return
    is_open = most >= _LARGEST and not (is_integer and int(value) > most)
    bounds = f"of at least {least}" if is_open else f"from {least} to {most}"
    raise (ValueError if is_integer else TypeError)(
        f"`{name}` must be an integer {bounds}{', or None' if or_none else ''}. "
        + received(**{name: value})
    )


def require_eager(method: str, remedy: str) -> None:
    """Raises RuntimeError in a graph.

    `method` returns Python values, and `remedy` is a sentence that says what to do.
    """
    if not tf.executing_eagerly():
        raise RuntimeError(
            f"`{method}` must be called in eager mode: it returns Python values. "
            f"Received: a call in a graph. {remedy}"
        )
