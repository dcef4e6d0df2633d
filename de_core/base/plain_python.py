"""Keeps AutoGraph out of this library's functions: they hold no Python that depends on tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import tensorflow as tf

_Function = TypeVar("_Function", bound=Callable[..., Any])


def plain_python(function: _Function) -> _Function:
    """Returns `function` so that a `tf.function` that calls it runs it as it is.

    AutoGraph would otherwise rewrite it, and all that it calls, at every trace.

    Args:
        function: An entry point of the library.
    """
    return cast("_Function", tf.autograph.experimental.do_not_convert(function))
