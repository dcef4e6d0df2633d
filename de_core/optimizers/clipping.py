"""Gradient clipping over tables and ordinary variables together.

A table's gradient is clipped like a dense variable's gradient: slices of equal ids are summed
first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import tensorflow as tf

from de_core.base.types import Gradient, Scalar
from de_core.optimizers.rules import as_scalar
from de_core.tables.router import summed_rows
from de_core.tables.sharded import ShardedTable
from de_core.tables.spec import arithmetic_dtype

#: Pairs of a gradient and its table.
Trained: TypeAlias = list[tuple[tf.IndexedSlices, ShardedTable]]
#: A Keras optimizer that clips has set one of these attributes.
SETTINGS = ("clipnorm", "clipvalue", "global_clipnorm")


def summed(gradient: tf.IndexedSlices) -> tf.IndexedSlices:
    """Returns a sparse gradient with one slice per id: the sum of the slices with that id."""
    ids, values = summed_rows(gradient.indices, gradient.values)
    return tf.IndexedSlices(values, ids, gradient.dense_shape)


def clip_tables(
    optimizer: Any, trained: Trained, others: Sequence[Gradient | None]
) -> tuple[Trained, tf.Tensor | None]:
    """Clips gradients of tables by the wrapped optimizer's settings for ordinary variables.

    The gradients of ordinary variables, `others`, count for the global norm.

    Returns:
        The pairs with clipped gradients, and a factor for `others` after `by_value`. Gradients
        scaled by the factor are within the global norm, so the optimizer does not clip them again.
        The factor is None unless the optimizer clips by global norm.
    """
    if not (optimizer.clipnorm or optimizer.clipvalue or optimizer.global_clipnorm):
        return trained, None
    gradients, scale = [by_value(optimizer, summed(each)) for each, _ in trained], None
    if optimizer.global_clipnorm:
        of_others = [by_value(optimizer, each) for each in others if each is not None]
        values = [values_of(each) for each in (*gradients, *of_others)]
        if not values:  # only tables with optimizers of their own have gradients
            return trained, None
        wide = max((each.dtype for each in values), key=lambda dtype: dtype.size)
        norm = tf.linalg.global_norm([tf.cast(each, arithmetic_dtype(wide)) for each in values])
        limit = as_scalar(optimizer.global_clipnorm, norm.dtype)
        scale = limit / tf.maximum(norm, limit)
        gradients = [scaled(each, scale) for each in gradients]
    elif optimizer.clipnorm:
        limit = optimizer.clipnorm
        gradients = [with_values(g, tf.clip_by_norm(g.values, limit)) for g in gradients]
    return [(each, table) for each, (_, table) in zip(gradients, trained, strict=True)], scale


def by_value(optimizer: Any, gradient: Gradient) -> Gradient:
    """Returns a gradient clipped by `clipvalue`.

    Besides a norm it counts for legacy optimizers only, which clip by the norm afterwards.
    """
    limit = optimizer.clipvalue
    has_norm = optimizer.clipnorm or optimizer.global_clipnorm
    if not limit or (has_norm and not hasattr(optimizer, "gradient_transformers")):
        return gradient
    values = tf.clip_by_value(values_of(gradient), -limit, limit)
    return with_values(gradient, values) if isinstance(gradient, tf.IndexedSlices) else values


def with_values(gradient: tf.IndexedSlices, values: tf.Tensor) -> tf.IndexedSlices:
    """Returns a sparse gradient with the same ids and other values."""
    return tf.IndexedSlices(values, gradient.indices, gradient.dense_shape)


def scaled(gradient: Gradient, factor: Scalar) -> Gradient:
    """Returns a gradient times a scalar. A sparse gradient stays sparse."""
    if isinstance(gradient, tf.IndexedSlices):
        return with_values(gradient, gradient.values * as_scalar(factor, gradient.values.dtype))
    return gradient * as_scalar(factor, gradient.dtype)


def values_of(gradient: Gradient) -> tf.Tensor:
    """Returns a gradient's values: without the ids if it is sparse."""
    if isinstance(gradient, tf.IndexedSlices):
        return gradient.values
    return tf.convert_to_tensor(gradient)


def is_finite(gradients: Sequence[Gradient]) -> tf.Tensor:
    """Returns a bool scalar: true if no gradient holds a NaN or an infinity."""
    finite = [tf.reduce_all(tf.math.is_finite(values_of(each))) for each in gradients]
    return tf.reduce_all(tf.stack(finite)) if finite else tf.constant(True)
