"""Finds a caller that TensorFlow or Keras does not pass as an argument.

Use it only where rows would otherwise be lost or misread silently.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Container
from types import CodeType, FrameType
from typing import Any


def nearest(*names: str, is_sought: Callable[[FrameType], bool] | None = None) -> FrameType | None:
    """Returns the innermost frame of this thread's call stack that fits, or None.

    Do not keep the frame in a local variable longer than needed. A frame that refers to itself
    keeps all its variables alive until the garbage collector runs.

    Args:
        *names: Names of functions; none for any function.
        is_sought: Returns whether the frame of such a function fits; None for all frames.

    Example:
    >>> from de_core.base import call_stack
    >>> def asked():
    ...     return call_stack.nearest("asking") is not None
    >>> def asking():
    ...     return asked()
    >>> asked(), asking()
    (False, True)
    """
    frame = inspect.currentframe()
    frame = frame and frame.f_back
    while frame is not None:
        is_named = not names or frame.f_code.co_name in names
        if is_named and (is_sought is None or is_sought(frame)):
            return frame
        frame = frame.f_back
    return None


def nearest_of(codes: Container[CodeType]) -> FrameType | None:
    """Returns the innermost frame of this thread's call stack that runs one of `codes`, or None."""
    return nearest(is_sought=lambda frame: frame.f_code in codes)


def nearest_owner(kind: type, is_sought: Callable[[Any], bool]) -> Any:
    """Returns the innermost object of a class that fits and whose method is running, or None."""
    frame = inspect.currentframe()
    while frame is not None:
        owner = frame.f_locals.get("self")
        if isinstance(owner, kind) and is_sought(owner):
            return owner
        frame = frame.f_back
    return None
