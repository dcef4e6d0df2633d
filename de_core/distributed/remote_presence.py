"""Detects parameter servers that lost their shards' rows.

A restarted server creates its shards again, without rows. No worker may train these empty
shards. So each shard has a flag variable on the same server, which a restart clears too.
`tf.compat.v1.train.MonitoredSession` checks the flag before a worker continues. If the flag is not
set, the chief restores the last checkpoint.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import tensorflow as tf

# TensorFlow 1's `Scaffold` builds `init_op` and `ready_op` from the items of this collection.
_RESOURCES = "resources"


class _Note(NamedTuple):
    """An item of the collection, with the attributes that TensorFlow reads."""

    handle: tf.Tensor
    create: tf.Operation
    is_initialized: tf.Tensor


def of_tables(name: str, devices: Sequence[str]) -> Callable[[], tf.Operation]:
    """Creates one flag variable per shard in the current graph.

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
            # Not `tf.compat.v1.is_variable_initialized`: it logs an error when the process exits.
            is_there = tf.raw_ops.VarIsInitializedOp(resource=variable.handle)
        note = _Note(variable.handle, variable.initializer, is_there)
        tf.compat.v1.add_to_collection(_RESOURCES, note)
        variables.append(variable)

    def written() -> tf.Operation:
        # Make new ops: the variables' initializers ignore control dependencies.
        return tf.group(*(variable.assign(True, read_value=False) for variable in variables))

    return written
