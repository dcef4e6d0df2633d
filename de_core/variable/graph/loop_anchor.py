"""Chooses the tensor that a lookup op takes as the anchor.

In a loop TensorFlow sums gradients as dense tensors, and in a branch it needs integer ids. A
table's gradient is never dense and may have string ids. So a lookup in a loop or a branch takes a
token that is created outside: a variant, whose gradient is a list of sparse gradients. TensorFlow
sums variants by our own rule. Outside, the list becomes one `tf.IndexedSlices`.

TensorFlow runs an op that takes a variable's handle on the variable's device. If the anchor is on
another task, such as a parameter server, TensorFlow would send the looked-up rows there and back.
So the lookup takes the anchor's value, which is empty.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from de_core.base.ops import library
from de_core.tables.sharded import ShardedTable
from de_core.tables.spec import arithmetic_dtype
from de_core.tables.table import is_remote

# TensorFlow has no public name for the graphs of branches and loop bodies.
_CONTROL_FLOW = ("CondBranchFuncGraph", "WhileBodyFuncGraph", "WhileCondFuncGraph")


def anchor_tensor(anchor: tf.Variable, table: ShardedTable) -> tf.Tensor:
    """Returns the tensor that a lookup op in the current graph takes as the anchor.

    Returns:
        The anchor's resource handle. If the anchor is on another task, its value [0, dim]. In a
        branch or a loop, a token.
    """
    graph: Any = None if tf.executing_eagerly() else tf.compat.v1.get_default_graph()
    if not _is_control_flow(graph):
        return _watched(anchor, table)
    while _is_control_flow(graph):
        graph = graph.outer_graph
    spec = table.spec
    with graph.as_default():
        return library.de_loop_anchor(
            _watched(anchor, table),
            Tkeys=spec.key_dtype,
            Tvalues=arithmetic_dtype(spec.value_dtype),
            dim=spec.dim,
        )


def _watched(anchor: tf.Variable, table: ShardedTable) -> tf.Tensor:
    """Makes tapes watch the anchor, and returns its handle or its value."""
    handle = anchor.handle
    device = handle.device or ""
    is_here = not is_remote(device) or "/job:localhost/" in device
    if is_here or table.router.is_spread:
        # To a tape this is a read, but it creates no op, unless the anchor has several replicas. A
        # read takes 2 us of each lookup, and if it becomes ready together with the lookup, another
        # thread runs the lookup.
        tf.type_spec_from_value(anchor).to_tensors(anchor)
        return handle
    if tf.is_symbolic_tensor(handle) and handle.graph is tf.compat.v1.get_default_graph():
        return handle.graph.as_graph_element(anchor)  # all lookups share one read
    return anchor.read_value()


def _is_control_flow(graph: Any) -> bool:
    return type(graph).__name__ in _CONTROL_FLOW
