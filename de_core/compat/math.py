"""Sparse operations, as TensorFlow has them."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

sparse_fill_empty_rows = tf.sparse.fill_empty_rows
sparse_reshape = tf.sparse.reshape


def sparse_segment_sum(
    data: Any, indices: Any, segment_ids: Any, name: str | None = None, num_segments: Any = None
) -> tf.Tensor:
    """Returns `tf.sparse.segment_sum`, with the arguments in the order of TensorFlow 1.

    Args:
        data: [rows, ...].
        indices: [n], rows of `data`.
        segment_ids: [n], ascending; the segment that each row adds to.
        name: Of the operation.
        num_segments: Number of segments; None for one more than the last.
    """
    return tf.sparse.segment_sum(data, indices, segment_ids, num_segments=num_segments, name=name)
