"""Notes on parameter servers that their tables have the rows they should.

A server that was restarted makes its tables anew, without rows. Nothing may be trained on these, so
each table has a note beside it, which is gone then too. `tf.compat.v1.train.MonitoredSession` asks
for it before it lets a worker go on, and has the chief restore the last checkpoint.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import tensorflow as tf

# The collection out of which TensorFlow 1's scaffolds make their `init_op` and `ready_op`.
_RESOURCES = "resources"


class _Note(NamedTuple):
    """What TensorFlow expects in the collection."""

    handle: tf.Tensor
    create: tf.Operation
    is_initialized: tf.Tensor


def of_tables(name: str, devices: Sequence[str]) -> Callable[[], tf.Operation]:
    """Makes a note beside each table of the current graph.

    Args:
        name: Of the Variable.
        devices: Where its tables live.

    Returns:
        A function that returns an op that writes the notes.
    """
    variables = []
    for index, device in enumerate(devices):
        with tf.device(device):
            variable = tf.compat.v1.Variable(
                True, trainable=False, collections=[], name=f"{name}/present_{index}"
            )
            # Not `is_variable_initialized`: that logs an error at the end of the process.
            is_there = tf.raw_ops.VarIsInitializedOp(resource=variable.handle)
        note = _Note(variable.handle, variable.initializer, is_there)
        tf.compat.v1.add_to_collection(_RESOURCES, note)
        variables.append(variable)

    def written() -> tf.Operation:
        # Ops of their own: an initializer would not wait for what these shall wait for.
        return tf.group(*(variable.assign(True, read_value=False) for variable in variables))

    return written
