"""A tensor that is computed when TensorFlow saves it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf


class WhenUsed:
    """Represents a string tensor until TensorFlow converts it.

    TensorFlow requests an object's tensors also on restore, when it needs only their names. It also
    requests them before the checkpoint's location is known.

    Args:
        make: Returns the tensor.
        device: The tensor's device; None for this process outside of a cluster.
    """

    dtype = tf.string
    shape = tf.TensorShape(None)

    def __init__(self, make: Callable[[], tf.Tensor], device: str | None = None) -> None:
        # In a graph, a device's job must be a job of the cluster. Without a job, the device is on
        # the session's own task.
        job = "/job:localhost/replica:0/task:0" if tf.executing_eagerly() else ""
        self.device = f"{job}/device:CPU:0" if device is None else device
        self._make = make
        self._made: tf.Tensor | None = None

    def __tf_tensor__(self, dtype: Any = None, name: str | None = None) -> tf.Tensor:
        """Computes the tensor on the first call, whatever dtype is wanted."""
        del dtype, name
        if self._made is None:
            self._made = self._make()
        return self._made
