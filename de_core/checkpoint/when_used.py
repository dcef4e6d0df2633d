"""A tensor that is computed when TensorFlow saves it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import tensorflow as tf


class WhenUsed:
    """Represents a string tensor until TensorFlow converts it.

    TensorFlow requests an object's tensors also on restore, when it needs only their names. It also
    requests them before the checkpoint's location is known.

    If a checkpoint has variables on several tasks, TensorFlow saves it in a `tf.function` of its
    own (`MultiDeviceSaver.save`, 2.21). The tensor is still computed eagerly then.

    Args:
        make: Returns the tensor.
    """

    dtype = tf.string
    shape = tf.TensorShape(None)

    def __init__(self, make: Callable[[], tf.Tensor]) -> None:
        self.is_eager = tf.executing_eagerly()
        with tf.device("/CPU:0"):
            # The name of this process's task differs from cluster to cluster. In a graph, a device
            # without a task is on the session's own task.
            self.device = tf.zeros([]).device if self.is_eager else "/device:CPU:0"
        self._make = make
        self._made: tf.Tensor | None = None

    def __tf_tensor__(self, dtype: Any = None, name: str | None = None) -> tf.Tensor:
        """Computes the tensor on the first call, whatever dtype is wanted."""
        del dtype, name
        if self._made is None:
            with tf.init_scope() if self.is_eager else contextlib.nullcontext():
                self._made = self._make()
        return self._made
