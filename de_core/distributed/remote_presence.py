"""Detects parameter servers that lost their tables' rows.

A restarted server creates its tables again, without rows, and nothing may be trained on these. So
each table has a flag variable beside it, which a restart clears too.
`tf.compat.v1.train.MonitoredSession` checks the flag before a worker continues. If it is missing,
the chief restores the last checkpoint.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import tensorflow as tf

# The collection from which TensorFlow 1's `Scaffold` builds `init_op` and `ready_op`.
_RESOURCES = "resources"


class _Note(NamedTuple):
    """An item of the collection, with the attributes that TensorFlow expects."""

    handle: tf.Tensor
    create: tf.Operation
    is_initialized: tf.Tensor


def of_tables(name: str, devices: Sequence[str]) -> Callable[[], tf.Operation]:
    """Creates a flag variable beside each table of the current graph.

    Args:
        name: The Variable's name.
        devices: The devices of its tables.

    Returns:
        A function that returns an op that sets the flags.
    """
    variables = []
    for index, device in enumerate(devices):
        with tf.device(device):
            variable = tf.compat.v1.Variable(
                True,
                trainable=False,
                collections=[],
                name=f"{name}/present_{index}",
                use_resource=True,
            )
            # `is_variable_initialized` would log an error when the process exits.
            is_there = tf.raw_ops.VarIsInitializedOp(resource=variable.handle)
        note = _Note(variable.handle, variable.initializer, is_there)
        tf.compat.v1.add_to_collection(_RESOURCES, note)
        variables.append(variable)

    def written() -> tf.Operation:
        # New ops, because an initializer ignores control dependencies.
        return tf.group(*(variable.assign(True, read_value=False) for variable in variables))

    return written
