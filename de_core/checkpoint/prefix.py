"""Where TensorFlow is writing the checkpoint that it asks a table's state for.

It tells an object that it is saved, but not under which prefix, and the rows' files shall lie
beside the checkpoint's own. What it does tell:

- `tf.train.Checkpoint` and `CheckpointManager` call the object from inside their method that is
  given the prefix, so it is among the arguments on the call stack, in a `tf.function` too.
- `tf.compat.v1.train.Saver` builds its ops in a name scope that holds the prefix's placeholder.

Nothing public says it: `tf.train.CheckpointOptions` has callbacks, but those are whoever saves's to
pass, and one for after a checkpoint is written comes too late. Where neither of the above is so
there is no prefix, and the rows' bytes go into the checkpoint itself, through memory.
"""

from __future__ import annotations

import inspect
import os
from types import CodeType, FrameType
from typing import Any

import tensorflow as tf

from de_core.base import call_stack

_WRITERS = {
    cls._write.__code__
    for cls in (tf.train.Checkpoint, tf.compat.v1.train.Checkpoint)
    if hasattr(cls, "_write")
}
_BUILDERS = {
    inspect.unwrap(method).__code__
    for method in (
        tf.compat.v1.saved_model.Builder.add_meta_graph,
        tf.compat.v1.saved_model.Builder.add_meta_graph_and_variables,
    )
}
# What a Saver names its placeholders of a prefix; the first one feeds the second.
_SAVER_OPS = ("filename", "Const")


def being_written() -> str | tf.Tensor | None:
    """Returns the prefix of the checkpoint that this thread is writing, or None.

    In eager mode a string, else a scalar string tensor.
    """
    frame = _frame_of(_WRITERS)
    prefix: Any = None if frame is None else frame.f_locals.get(frame.f_code.co_varnames[1])
    if isinstance(prefix, os.PathLike):
        prefix = os.fspath(prefix)
    if not isinstance(prefix, str) and not tf.is_tensor(prefix):
        return None
    if tf.executing_eagerly():
        return prefix if isinstance(prefix, str) else prefix.numpy().decode()
    # A graph of TensorFlow 1 is made once for all prefixes, and has a placeholder.
    in_function = tf.compat.v1.executing_eagerly_outside_functions()
    return tf.convert_to_tensor(prefix) if in_function else None


def saved_model_is_being_built() -> bool:
    """Returns whether the Saver that asks is TensorFlow 1's for a SavedModel."""
    return _frame_of(_BUILDERS) is not None


def _frame_of(codes: set[CodeType]) -> FrameType | None:
    return call_stack.nearest(lambda frame: frame.f_code in codes)


def of_the_saver_being_built() -> tf.Tensor | None:
    """Returns the prefix, a scalar string, in whose Saver's scope ops are made now, or None."""
    graph = tf.compat.v1.get_default_graph()
    scope = graph.get_name_scope()
    # The last one: in a graph that was imported the scope is that of an earlier Saver, too.
    for operation in reversed(graph.get_operations() if scope else []):
        parent, _, name = operation.name.rpartition("/")
        if f"{scope}/".startswith(f"{parent}/") and _is_prefix(operation, name):
            return operation.outputs[0]
    return None


def _is_prefix(operation: tf.Operation, name: str) -> bool:
    placeholder = "PlaceholderWithDefault"
    if operation.type != placeholder or not name.startswith(_SAVER_OPS[1]):
        return False
    first = operation.inputs[0].op
    return first.type == placeholder and _SAVER_OPS[0] in first.name.rpartition("/")[2]
