"""Gradient clipping over tables and ordinary variables together.

A table's gradient is clipped as that of a dense variable would be: the slices of equal ids are
summed first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf


def summed(gradient: tf.IndexedSlices) -> tf.IndexedSlices:
    """Returns a sparse gradient with one slice for each id, the sum of all of the same id."""
    ids, positions = tf.unique(gradient.indices)
    values = tf.math.unsorted_segment_sum(gradient.values, positions, tf.size(ids))
    return tf.IndexedSlices(values, ids, gradient.dense_shape)


def clip_tables(optimizer: Any, gradients: Sequence[Any], is_table: Sequence[bool]) -> list[Any]:
    """Clips the gradients of tables as the wrapped optimizer will clip the others.

    Args:
        optimizer: With `clipnorm`, `clipvalue` or `global_clipnorm`, or none of them.
        gradients: Of every variable; None where there is none.
        is_table: Whose gradients are those of tables.

    Returns:
        The gradients, those of tables clipped; with `global_clipnorm` the others are scaled too, by
        the norm over all, so that the optimizer's own clipping finds nothing left to do.
    """
    if not (optimizer.clipnorm or optimizer.clipvalue or optimizer.global_clipnorm):
        return list(gradients)
    sparse = [
        summed(each) if table and isinstance(each, tf.IndexedSlices) else each
        for each, table in zip(gradients, is_table, strict=True)
    ]
    if optimizer.global_clipnorm:
        norm = tf.linalg.global_norm([each for each in sparse if each is not None])
        scale = optimizer.global_clipnorm / tf.maximum(norm, optimizer.global_clipnorm)
        return [None if each is None else scaled(each, scale) for each in sparse]
    return [
        _clipped(optimizer, each) if table and isinstance(each, tf.IndexedSlices) else each
        for each, table in zip(sparse, is_table, strict=True)
    ]


def scaled(gradient: tf.Tensor | tf.IndexedSlices, factor: Any) -> tf.Tensor | tf.IndexedSlices:
    """Returns a gradient times a scalar, sparse if it was."""
    if isinstance(gradient, tf.IndexedSlices):
        values = gradient.values * tf.cast(factor, gradient.values.dtype)
        return tf.IndexedSlices(values, gradient.indices, gradient.dense_shape)
    return gradient * tf.cast(factor, gradient.dtype)


def _clipped(optimizer: Any, gradient: tf.IndexedSlices) -> tf.IndexedSlices:
    if optimizer.clipnorm:
        values = tf.clip_by_norm(gradient.values, optimizer.clipnorm)
    else:
        values = tf.clip_by_value(gradient.values, -optimizer.clipvalue, optimizer.clipvalue)
    return tf.IndexedSlices(values, gradient.indices, gradient.dense_shape)
