"""Finds the caller, where TensorFlow or Keras names it in no argument.

Use it only where rows would be lost, or read wrong, without a word.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import FrameType


def nearest(is_sought: Callable[[FrameType], bool]) -> FrameType | None:
    """Returns the innermost frame of this thread's call stack that is sought, or None.

    Do not keep the frame in a local variable for longer than needed. A frame that refers to itself
    waits, with all its variables, for the garbage collector.

    Args:
        is_sought: Returns True for the frame to find. Called from the caller outwards.

    Example:
    >>> from de_core.base import call_stack
    >>> def asked():
    ...     return call_stack.nearest(lambda frame: frame.f_code.co_name == "asking") is not None
    >>> def asking():
    ...     return asked()
    >>> asked(), asking()
    (False, True)
    """
    frame = inspect.currentframe()
    frame = frame and frame.f_back
    while frame is not None and not is_sought(frame):
        frame = frame.f_back
    return frame


def is_called_by(name: str) -> bool:
    """Returns whether the function that asks this is called by one of this name."""
    frame = inspect.currentframe()
    for _ in range(2):
        frame = frame and frame.f_back
    return frame is not None and frame.f_code.co_name == name
