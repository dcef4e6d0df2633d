"""Checks of arguments and of the mode, and the `Received: …` part of their errors."""

from __future__ import annotations

import numbers
from typing import Any

import tensorflow as tf


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


def check_integer(name: str, value: Any, least: int, most: int = 2**62) -> None:
    """Raises unless an argument is a whole number from `least` to `most`."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise TypeError(
            f"`{name}` must be an integer from {least} to {most}. {received(**{name: value})}"
        )
    if not least <= int(value) <= most:
        raise ValueError(f"`{name}` must be from {least} to {most}. {received(**{name: value})}")


def checked_init_size(init_size: Any) -> int:
    """Returns `init_size` as an int."""
    if isinstance(init_size, bool) or not isinstance(init_size, numbers.Integral):
        raise TypeError(f"`init_size` must be an integer. {received(init_size=init_size)}")
    if init_size < 0:
        raise ValueError(f"`init_size` must not be negative. {received(init_size=init_size)}")
    return int(init_size)


def require_eager(method: str, remedy: str) -> None:
    """Raises RuntimeError in a graph.

    `method` returns Python values, and `remedy` is a sentence that says what to do.
    """
    if not tf.executing_eagerly():
        raise RuntimeError(
            f"`{method}` must be called in eager mode: it returns Python values. "
            f"Received: a call in a graph. {remedy}"
        )
