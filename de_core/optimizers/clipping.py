"""Gradient clipping over tables and ordinary variables together.

A table's gradient is clipped as that of a dense variable would be: the slices of equal ids are
summed first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import tensorflow as tf

#: What an optimizer that clips has one of.
SETTINGS = ("clipnorm", "clipvalue", "global_clipnorm")
#: A `tf.Tensor` or `tf.IndexedSlices`.
Gradient: TypeAlias = Any


def summed(gradient: tf.IndexedSlices) -> tf.IndexedSlices:
    """Returns a sparse gradient with one slice for each id, the sum of all of the same id."""
    ids, positions = tf.unique(gradient.indices)
    values = tf.math.unsorted_segment_sum(gradient.values, positions, tf.size(ids))
    return tf.IndexedSlices(values, ids, gradient.dense_shape)


def clip_tables(
    optimizer: Any, tables: Sequence[tf.IndexedSlices], others: Sequence[Gradient]
) -> tuple[list[tf.IndexedSlices], tf.Tensor | None]:
    """Clips the gradients of tables as the wrapped optimizer clips those of ordinary variables.

    Args:
        optimizer: With `clipnorm`, `clipvalue` or `global_clipnorm`, or none of them.
        tables: Gradients of tables.
        others: Gradients of ordinary variables, which count for the global norm.

    Returns:
        The gradients of tables, clipped, and what the others must be scaled by, so that the
        optimizer's own clipping by global norm finds nothing left to do; None for nothing.
    """
    if optimizer.global_clipnorm:
        sparse = [summed(each) for each in tables]
        norm = tf.linalg.global_norm([*sparse, *others])
        limit = tf.cast(optimizer.global_clipnorm, norm.dtype)
        scale = limit / tf.maximum(norm, limit)
        return [scaled(each, scale) for each in sparse], scale
    if optimizer.clipnorm:
        return [
            _with_values(summed(each), tf.clip_by_norm, optimizer.clipnorm) for each in tables
        ], None
    if optimizer.clipvalue:
        value = optimizer.clipvalue
        return [
            _with_values(summed(each), tf.clip_by_value, -value, value) for each in tables
        ], None
    return list(tables), None


def scaled(gradient: Gradient, factor: Any) -> Gradient:
    """Returns a gradient times a scalar, sparse if it was."""
    if isinstance(gradient, tf.IndexedSlices):
        values = gradient.values * tf.cast(factor, gradient.values.dtype)
        return tf.IndexedSlices(values, gradient.indices, gradient.dense_shape)
    return gradient * tf.cast(factor, gradient.dtype)


def values_of(gradient: Gradient) -> tf.Tensor:
    """Returns the numbers of a gradient, without the ids they belong to."""
    if isinstance(gradient, tf.IndexedSlices):
        return gradient.values
    return tf.convert_to_tensor(gradient)


def is_finite(gradients: Sequence[Gradient]) -> tf.Tensor:
    """Returns whether no gradient holds a NaN or an infinity, a bool scalar."""
    finite = [tf.reduce_all(tf.math.is_finite(values_of(each))) for each in gradients]
    return tf.reduce_all(tf.stack(finite)) if finite else tf.constant(True)


def _with_values(gradient: tf.IndexedSlices, clip: Any, *limits: Any) -> tf.IndexedSlices:
    values = clip(gradient.values, *limits)
    return tf.IndexedSlices(values, gradient.indices, gradient.dense_shape)
