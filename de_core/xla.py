"""Tables under XLA, which has no such ops."""

from __future__ import annotations

from types import FrameType

import tensorflow as tf

from de_core import call_stack

# Methods of a tf.function that trace it.
_TRACING = ("_call", "_initialize", "get_concrete_function")


def check_not_compiling(table_name: str) -> None:
    """Checks that an op of a table is not traced for XLA.

    Args:
        table_name: Of the table.

    Raises:
        NotImplementedError: A `tf.function` with `jit_compile=True` is being traced.
    """
    if tf.executing_eagerly() or call_stack.nearest(_compiles) is None:
        return
    raise NotImplementedError(
        "XLA cannot compile lookups and updates of a table: leave jit_compile=True away (in "
        "tf_keras, compile(jit_compile=False)), or keep it to functions of the rows. Received: "
        f"jit_compile=True around an operation of the table {table_name!r}."
    )


def _compiles(frame: FrameType) -> bool:
    if frame.f_code.co_name not in _TRACING:
        return False
    function = frame.f_locals.get("self")
    is_function = isinstance(function, tf.types.experimental.PolymorphicFunction)
    return is_function and bool(getattr(function, "_jit_compile", False))
