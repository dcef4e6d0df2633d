"""Registers the gradients of lookup ops: sparse gradients, one slice per id.

The slices are float32, or float64 for float64 rows. So sums of float16 or bfloat16 slices are exact
to float32.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from de_core.base.ops import library
from de_core.tables.spec import arithmetic_dtype

# First dimension of a gradient's dense shape. `tf.TensorShape` reads -1 as None: a table's height
# is unbounded. So TensorFlow refuses to densify the gradient. The shape is int32, because tf.cond
# uses int32 for the gradient of a branch without a lookup.
_UNBOUNDED = -1


@tf.RegisterGradient("DeEmbeddingAnchor")
def _anchor_gradient(op: Any, gradient: tf.Tensor) -> tuple[Any, None, None]:
    """Returns the gradient with respect to the anchor: one slice per looked-up id.

    Args:
        op: The forward op. Its inputs are the anchor, keys [...] and rows [..., dim].
        gradient: Gradient of the output, [..., dim].
    """
    anchor, keys, rows = op.inputs
    if isinstance(gradient, tf.IndexedSlices):  # the gradient of tf.gather
        values = tf.cast(gradient.values, arithmetic_dtype(gradient.dtype))
        gradient = tf.math.unsorted_segment_sum(values, gradient.indices, tf.shape(rows)[0])
    return anchor_slices(anchor, _flat(keys, []), _flat(gradient, [rows.shape[-1]])), None, None


@tf.RegisterGradient("DeLoopAnchor")
def _loop_anchor_gradient(op: Any, gradient: tf.Tensor) -> tf.IndexedSlices:
    """Returns the anchor's gradient: all gradients of lookups in a branch or a loop.

    Args:
        op: The forward op. Its input is the anchor and its output the token (`anchor_tensor`).
        gradient: Gradient of the token, a variant that lists sparse gradients.
    """
    dim = op.get_attr("dim")
    keys, values = library.de_row_gradients_concat(
        gradient, Tkeys=op.get_attr("Tkeys"), Tvalues=op.get_attr("Tvalues"), dim=dim
    )
    return _slices(keys, values, dim)


def _flat(tensor: tf.Tensor, row: list[int]) -> tf.Tensor:
    """Reshapes a tensor to [n, *row] in the current graph.

    Creates no op if the tensor has that shape already. An additional op could become ready at the
    same time as other ops. TensorFlow would then run it on another thread, which takes time.
    """
    graph = None if tf.executing_eagerly() else tf.compat.v1.get_default_graph()
    is_here = graph is (tensor.graph if tf.is_symbolic_tensor(tensor) else None)
    is_flat = tensor.shape.rank == 1 + len(row) and tensor.shape[1:].as_list() == row
    return tensor if is_here and is_flat else tf.reshape(tensor, [-1, *row])


def anchor_slices(anchor: tf.Tensor, keys: tf.Tensor, values: tf.Tensor) -> Any:
    """Returns the gradient with respect to an anchor or its token."""
    values = tf.cast(values, arithmetic_dtype(values.dtype))
    if anchor.dtype == tf.variant:
        return library.de_row_gradients(keys, values)
    return _slices(keys, values, values.shape[-1])


class TableGradient(tf.IndexedSlices):
    """A table's gradient. It cannot become dense, because a table has no height.

    Only the error differs from a `tf.IndexedSlices` of unbounded height, which TensorFlow makes
    of it when it adds gradients or returns them from a `tf.function`.
    """


def _slices(keys: tf.Tensor, values: tf.Tensor, dim: int) -> tf.IndexedSlices:
    return TableGradient(values, keys, tf.constant([_UNBOUNDED, dim], tf.int32))


def _refuse_to_densify(gradient: TableGradient, *_: Any, **__: Any) -> tf.Tensor:
    raise ValueError(
        "A table's gradient must stay sparse, because a table has no height. Received: a gradient "
        f"of {gradient.values.shape[0]} slices to make dense. Compute on its `values`, and make a "
        "tf.IndexedSlices of the new values and the same `indices`. If the loss has a penalty over "
        "all trainable variables, leave the tables' variables out, and pass `regularizer` "
        "(`embeddings_regularizer` of a layer)."
    )


# TensorFlow's own conversion has the priority 100.
tf.register_tensor_conversion_function(TableGradient, _refuse_to_densify, priority=90)


def is_wanted(op: Any, index: int) -> bool:
    """Returns whether a tape needs the gradient of an input. In graphs, always True."""
    try:
        skipped = op.skip_input_indices
    except AttributeError:
        return True
    return skipped is None or index not in skipped


for _name in (
    "DeTableFind",
    "DeTableContains",
    "DeTableSize",
    "DeTableStats",
    "DeTableExport",
    "DeTableFindOrInsert",
    "DeShardOf",
    "DeSegmentOrder",
    "DeStringsToWords",
    "DeWordsToStrings",
):
    tf.no_gradient(_name)
