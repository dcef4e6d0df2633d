"""How a lookup's gradient leaves `tf.cond` and `tf.while_loop`.

TensorFlow adds gradients up in a loop as dense tensors, and wants integer ids in a branch: a
table's gradient is neither. So a lookup there does not take the anchor itself but a token, made
outside: a variant, whose gradient is a list of sparse gradients. TensorFlow adds variants up by
their own rule, and outside the list becomes one `tf.IndexedSlices` again.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from de_core.base.ops import library
from de_core.tables.spec import TableSpec

# TensorFlow has no public name for the graphs of branches and loop bodies.
_CONTROL_FLOW = ("CondBranchFuncGraph", "WhileBodyFuncGraph", "WhileCondFuncGraph")


def anchor_tensor(anchor: tf.Variable, spec: TableSpec) -> tf.Tensor:
    """Returns what a lookup in the current graph takes as its anchor.

    Args:
        anchor: The variable that stands for the table.
        spec: Of the table.

    Returns:
        Its resource handle, or a token where the lookup is in a branch or a loop.
    """
    graph: Any = None if tf.executing_eagerly() else tf.compat.v1.get_default_graph()
    if not _is_control_flow(graph):
        anchor.read_value()  # a tape watches a variable once it is read
        return anchor.handle
    while _is_control_flow(graph):
        graph = graph.outer_graph
    with graph.as_default():
        anchor.read_value()
        return library.de_loop_anchor(
            anchor.handle, Tkeys=spec.key_dtype, Tvalues=spec.value_dtype, dim=spec.dim
        )


def _is_control_flow(graph: Any) -> bool:
    return type(graph).__name__ in _CONTROL_FLOW
