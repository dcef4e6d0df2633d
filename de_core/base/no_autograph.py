"""Keeps AutoGraph out of this library. No control flow here depends on tensors."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar, cast

import tensorflow as tf

_Function = TypeVar("_Function", bound=Callable[..., Any])


def no_autograph(function: _Function) -> _Function:
    """Decorates `function` so that AutoGraph does not rewrite it or any function that it calls.

    Otherwise AutoGraph would rewrite all these functions at every trace.

    Args:
        function: An entry point of the library. In a finalized graph, calls raise a RuntimeError
            that contains the remedy.
    """

    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except RuntimeError as error:
            if error.__cause__ is not None or not tf.compat.v1.get_default_graph().finalized:
                raise
            raise RuntimeError(
                "The graph must not be finalized, because a table's verb adds ops. Received: "
                f"`{function.__qualname__}` in a finalized graph. Call it before the session is "
                "created, feed its ids by a placeholder, and run the tensors that it returned."
            ) from error

    # Keras reads the arguments of `call` from its signature, not from its code.
    run.__signature__ = inspect.signature(function)  # type: ignore[attr-defined]
    return cast("_Function", tf.autograph.experimental.do_not_convert(run))
