"""A tensor that is made when TensorFlow saves it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf


class WhenUsed:
    """Stands for a string tensor until TensorFlow converts it.

    TensorFlow asks an object for its tensors to restore it, too, and only wants their names then;
    and it asks before it knows where a checkpoint will lie.

    Args:
        make: Returns the tensor.
        device: Where it is; None for this process, where it is of no cluster.
    """

    dtype = tf.string
    shape = tf.TensorShape(None)

    def __init__(self, make: Callable[[], tf.Tensor], device: str | None = None) -> None:
        # In a graph a job would have to be one of the cluster's: the session's own task is meant.
        job = "/job:localhost/replica:0/task:0" if tf.executing_eagerly() else ""
        self.device = f"{job}/device:CPU:0" if device is None else device
        self._make = make
        self._made: tf.Tensor | None = None

    def __tf_tensor__(self, dtype: Any = None, name: str | None = None) -> tf.Tensor:
        """Makes the tensor the first time, whatever dtype is wanted."""
        del dtype, name
        if self._made is None:
            self._made = self._make()
        return self._made
