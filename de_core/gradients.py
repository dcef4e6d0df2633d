"""The gradient of a lookup: the rows' gradients together with the ids they belong to."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

# As the first dimension of a dense shape: a table's height is unbounded. TensorShape reads it as
# None, and whoever tries to make the gradient dense fails at once instead of filling the memory.
# int32, because that is what tf.cond gives the branch without a lookup.
_UNBOUNDED = -1
# TensorFlow's messages name the ops they are about, so those of such a failure hold the remedy.
_REMEDY = "only_de.DynamicEmbeddingOptimizer_can_apply_this_gradient"


@tf.RegisterGradient("DeEmbeddingAnchor")
def _anchor_gradient(op: Any, gradient: tf.Tensor) -> tuple[tf.IndexedSlices, None, None]:
    """Returns the gradient with respect to the anchor: one slice for each id looked up.

    Args:
        op: The forward op; its inputs are the anchor, keys [...] and rows [..., dim].
        gradient: Of the output, [..., dim].
    """
    _check_graph(op, type(tf.compat.v1.get_default_graph()).__name__)
    rows = op.inputs[2]
    dim = rows.shape[-1]
    slices = tf.IndexedSlices(
        values=tf.reshape(gradient, [-1, dim]),
        indices=tf.reshape(op.inputs[1], [-1]),
        dense_shape=tf.constant([_UNBOUNDED, dim], tf.int32, name=_REMEDY),
    )
    return slices, None, None


def _check_graph(op: Any, graph_class: str) -> None:
    """Names what TensorFlow cannot do, before it fails for another reason.

    It has no public name for the graphs that it builds a loop's or a branch's gradient in.
    """
    ids = op.inputs[1]
    lookup = f"Received: ids of shape {ids.shape} (of type {ids.dtype.name})."
    if graph_class == "_WhileBodyGradFuncGraph":
        raise NotImplementedError(
            "The gradient of a lookup cannot leave a tf.while_loop: TensorFlow accumulates it "
            "densely there, and a table has no dense form. Look the ids up once outside the loop "
            f"and index the rows inside it, or take the gradient inside the loop. {lookup}"
        )
    if graph_class == "_CondGradFuncGraph" and ids.dtype == tf.string:
        raise NotImplementedError(
            "The gradient of a lookup of string ids cannot leave a branch of tf.cond: TensorFlow "
            "wants integer ids there. Look the ids up outside the branch and choose among the "
            f"rows inside it. {lookup}"
        )


for _name in (
    "DeTableFind",
    "DeTableContains",
    "DeTableSize",
    "DeTableStats",
    "DeTableExport",
    "DeTableFindOrInsert",
    "DeShardOf",
):
    tf.no_gradient(_name)
