"""Splitting and joining batches, as TensorFlow does it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

dynamic_partition = tf.dynamic_partition


def dynamic_stitch(
    indices: Sequence[Any], data: Sequence[Any], use_fast: bool = True, name: str | None = None
) -> tf.Tensor:
    """Returns `tf.dynamic_stitch(indices, data)`.

    Args:
        indices: Where the parts' rows belong.
        data: The parts.
        use_fast: Not used: there is one way.
        name: Of the operation.
    """
    del use_fast
    return tf.dynamic_stitch(list(indices), list(data), name=name)
