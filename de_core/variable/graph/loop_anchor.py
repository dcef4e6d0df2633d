"""Chooses the tensor that a lookup takes as its anchor.

TensorFlow adds gradients up in a loop as dense tensors, and wants integer ids in a branch: a
table's gradient is neither. So a lookup there does not take the anchor itself but a token, made
outside: a variant, whose gradient is a list of sparse gradients. TensorFlow adds variants up by
their own rule, and outside the list becomes one `tf.IndexedSlices` again.

TensorFlow runs an op that takes a variable's handle on the device of the variable. If the anchor
is on another task, such as a parameter server, the rows of a lookup would travel there and back.
So the lookup takes the anchor's value, which is empty.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from de_core.base.ops import library
from de_core.tables.sharded import ShardedTable
from de_core.tables.table import is_remote

# TensorFlow has no public name for the graphs of branches and loop bodies.
_CONTROL_FLOW = ("CondBranchFuncGraph", "WhileBodyFuncGraph", "WhileCondFuncGraph")


def anchor_tensor(
    anchor: tf.Variable, table: ShardedTable, after: Sequence[tf.Tensor] = ()
) -> tf.Tensor:
    """Returns what a lookup in the current graph takes as its anchor.

    Args:
        anchor: The variable that stands for the table.
        table: The table.
        after: Read an anchor of this task after these tensors.

    Returns:
        The anchor's resource handle; its value, [0, dim], if it is on another task; or a token if
        the lookup is in a branch or a loop.
    """
    graph: Any = None if tf.executing_eagerly() else tf.compat.v1.get_default_graph()
    if not _is_control_flow(graph):
        return _read(anchor, table, after)
    while _is_control_flow(graph):
        graph = graph.outer_graph
    spec = table.spec
    with graph.as_default():
        return library.de_loop_anchor(
            _read(anchor, table), Tkeys=spec.key_dtype, Tvalues=spec.value_dtype, dim=spec.dim
        )


def _read(anchor: tf.Variable, table: ShardedTable, after: Sequence[tf.Tensor] = ()) -> tf.Tensor:
    """Reads an anchor, so that tapes watch it, and returns what ops of the current graph take."""
    handle = anchor.handle
    if not _is_on_another_task(handle.device) or table.router.is_spread:
        with tf.control_dependencies(after):
            anchor.read_value()
        return handle
    if tf.is_symbolic_tensor(handle) and handle.graph is tf.compat.v1.get_default_graph():
        return handle.graph.as_graph_element(anchor)  # all lookups share one read
    return anchor.read_value()


def _is_on_another_task(device: str | None) -> bool:
    return is_remote(device or "") and "/job:localhost/" not in str(device)


def _is_control_flow(graph: Any) -> bool:
    return type(graph).__name__ in _CONTROL_FLOW
