"""Argument checks, and the `Received: …` part of their errors."""

from __future__ import annotations

import numbers
from typing import Any


def received(**values: Any) -> str:
    """Returns the second half of an error message: the arguments as received.

    Args:
        **values: The offending arguments by name.

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


def checked_init_size(init_size: Any) -> int:
    """Returns `init_size` as an int.

    Raises:
        TypeError: `init_size` is not a whole number.
        ValueError: `init_size` is negative.
    """
    if isinstance(init_size, bool) or not isinstance(init_size, numbers.Integral):
        raise TypeError(f"`init_size` must be an integer. {received(init_size=init_size)}")
    if init_size < 0:
        raise ValueError(f"`init_size` must not be negative. {received(init_size=init_size)}")
    return int(init_size)
