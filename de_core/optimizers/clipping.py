"""Gradient clipping over tables and ordinary variables together.

As Keras clips the gradient of its own Embedding layer: a sparse gradient is its slices, so equal
ids are clipped before they are summed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf


def clip_slices(optimizer: Any, gradient: tf.IndexedSlices) -> tf.IndexedSlices:
    """Clips one sparse gradient by the optimizer's `clipnorm` or `clipvalue`."""
    if optimizer.clipnorm:
        return tf.clip_by_norm(gradient, optimizer.clipnorm)
    if optimizer.clipvalue:
        limit = optimizer.clipvalue
        return _with_values(gradient, tf.clip_by_value(gradient.values, -limit, limit))
    return gradient


def clip_all_by_global_norm(optimizer: Any, gradients: Sequence[Any]) -> list[Any]:
    """Scales all gradients down to the optimizer's `global_clipnorm`, if it has one.

    Args:
        optimizer: A Keras optimizer.
        gradients: Of every variable, tables included; None where there is none.
    """
    if not optimizer.global_clipnorm:
        return list(gradients)
    norm = tf.linalg.global_norm([each for each in gradients if each is not None])
    scale = optimizer.global_clipnorm / tf.maximum(norm, optimizer.global_clipnorm)
    return [None if each is None else scaled(each, scale) for each in gradients]


def scaled(gradient: tf.Tensor | tf.IndexedSlices, factor: Any) -> tf.Tensor | tf.IndexedSlices:
    """Returns a gradient times a scalar, sparse if it was."""
    if isinstance(gradient, tf.IndexedSlices):
        factor = tf.cast(factor, gradient.values.dtype)
        return _with_values(gradient, gradient.values * factor)
    return gradient * tf.cast(factor, gradient.dtype)


def _with_values(gradient: tf.IndexedSlices, values: tf.Tensor) -> tf.IndexedSlices:
    return tf.IndexedSlices(values, gradient.indices, gradient.dense_shape)
