"""Finds the prefix of the checkpoint that TensorFlow is writing.

TensorFlow requests an object's state without passing the checkpoint's prefix. We need the prefix to
write the rows' files beside the checkpoint. We find it in two places:

- `tf.train.Checkpoint` and `CheckpointManager` request the state in a method whose argument is the
  prefix. We find the argument on the call stack, also in a `tf.function`.
- `tf.compat.v1.train.Saver` creates its ops in a name scope that contains the prefix's placeholder.

No public API tells the prefix. The callbacks of `tf.train.CheckpointOptions` belong to the user who
saves, and the callback after a save runs too late. Without a prefix, the rows' bytes are written
into the checkpoint itself, through memory.
"""

from __future__ import annotations

import inspect
import os
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
# Names of a Saver's two placeholders for the prefix. The first gives the second its default value.
_SAVER_OPS = ("filename", "Const")


def being_written() -> str | tf.Tensor | None:
    """Returns the prefix of the checkpoint that this thread is writing, or None.

    The prefix is a string in eager mode, otherwise a scalar string tensor.
    """
    frame = call_stack.nearest_of(_WRITERS)
    prefix: Any = None if frame is None else frame.f_locals.get(frame.f_code.co_varnames[1])
    if isinstance(prefix, os.PathLike):
        prefix = os.fspath(prefix)
    if not isinstance(prefix, str) and not tf.is_tensor(prefix):
        return None
    if tf.executing_eagerly():
        return prefix if isinstance(prefix, str) else prefix.numpy().decode()
    # A TensorFlow 1 graph is built once for all prefixes and has a placeholder for them.
    in_function = tf.compat.v1.executing_eagerly_outside_functions()
    return tf.convert_to_tensor(prefix) if in_function else None


def saved_model_is_being_built() -> bool:
    """Returns whether the calling Saver is a TensorFlow 1 Saver for a SavedModel."""
    return call_stack.nearest_of(_BUILDERS) is not None


def of_the_saver_being_built() -> tf.Tensor | None:
    """Returns the prefix placeholder, a scalar string, of the Saver being built, or None."""
    graph = tf.compat.v1.get_default_graph()
    scope = graph.get_name_scope()
    # Take the last match: an imported graph may also contain the scope of an earlier Saver.
    placeholder = "PlaceholderWithDefault"
    for operation in reversed(graph.get_operations() if scope else []):
        parent, _, name = operation.name.rpartition("/")
        in_scope = f"{scope}/".startswith(f"{parent}/")
        if not in_scope or operation.type != placeholder or not name.startswith(_SAVER_OPS[1]):
            continue
        first = operation.inputs[0].op
        if first.type == placeholder and _SAVER_OPS[0] in first.name.rpartition("/")[2]:
            return operation.outputs[0]
    return None
