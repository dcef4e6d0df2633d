"""Pools the rows of each segment of ids, for the combiners of the layers, and checks how."""

from __future__ import annotations

import numbers
from collections.abc import Callable
from typing import Literal, TypeAlias

import tensorflow as tf

from de_core.base.checks import received
from de_core.base.types import Ids
from de_core.lookup.pooling import COMBINERS, pooled_rows
from de_core.lookup.segments import Segments, kind_of
from de_core.tables.spec import arithmetic_dtype
from de_core.variable.variable import Variable

_REDUCTIONS: dict[str, Callable[[tf.Tensor, tf.Tensor, tf.Tensor], tf.Tensor]] = {
    "min": tf.math.unsorted_segment_min,
    "max": tf.math.unsorted_segment_max,
    "prod": tf.math.unsorted_segment_prod,
}
#: How a layer pools rows: a name, or a function `f(rows [n, dim]) -> row [dim]`.
Combiner: TypeAlias = (
    Literal["sum", "mean", "sqrtn", "min", "max", "prod", "std"] | Callable[[tf.Tensor], tf.Tensor]
)
#: The combiners that layers know by name.
NAMES = (*COMBINERS, *_REDUCTIONS, "std")


def checked(combiner: Combiner | None) -> Combiner | None:
    """Returns `combiner` after checking it."""
    if combiner is None or combiner in NAMES or callable(combiner):
        return combiner
    raise ValueError(
        f"`combiner` must be None, one of {', '.join(NAMES)}, or a function of rows [n, dim] that "
        f"returns a row [dim]. {received(combiner=combiner)}"
    )


def checked_norm(max_norm: float | None) -> float | None:
    """Returns `max_norm` as a float or None. Raises if `max_norm` is not a positive number."""
    if max_norm is None:
        return None
    if isinstance(max_norm, bool) or not isinstance(max_norm, numbers.Real):
        raise TypeError(f"`max_norm` must be None or a number. {received(max_norm=max_norm)}")
    if not float(max_norm) > 0:
        raise ValueError(f"`max_norm` must be None or above 0. {received(max_norm=max_norm)}")
    return float(max_norm)


def require_pooling(combiner: Combiner | None, weights: object) -> None:
    """Raises ValueError if there are weights, but `combiner` is None."""
    if combiner is None and weights is not None:
        raise ValueError(
            "`combiner` must be set for ids with weights: weights count when rows are pooled. "
            + received(combiner=None)
        )


def check_weights(weights: Ids, ids: Ids, owner: str) -> None:
    """Checks the weights of ids."""
    kinds = kind_of(ids), kind_of(weights)
    same = kinds[0] == kinds[1] and ids.shape.is_compatible_with(weights.shape)
    if not weights.dtype.is_floating or not same:
        raise ValueError(
            f"The weights of {owner} must be of the kind and the shape of its ids, and of a "
            f"floating-point dtype. Received: {kinds[1]} {weights.dtype.name} weights of shape "
            f"{weights.shape} for {kinds[0]} ids of shape {ids.shape}."
        )


def pool(
    variable: Variable, segments: Segments, combiner: Combiner, max_norm: float | None
) -> tf.Tensor:
    """Looks up ids and pools the rows of each segment.

    "sum", "mean" and "sqrtn" never store all rows at once. The other combiners do.

    Returns:
        Pooled rows of the value dtype, [segments, dim]; zeros for a segment without ids.
    """
    if combiner in COMBINERS:
        return pooled_rows(variable, segments, combiner=combiner, max_norm=max_norm)
    if segments.weights is not None:
        raise ValueError(
            f"`combiner` must be one of {', '.join(COMBINERS)} for ids with weights. "
            + received(combiner=combiner)
        )
    if combiner == "std" and not variable.value_dtype.is_floating:
        raise TypeError(
            "Rows must be of a floating-point dtype for combiner='std'. Received: "
            f"value_dtype={variable.value_dtype.name}, {combiner=} for table {variable.name!r}."
        )
    if callable(combiner):
        return _mapped(combiner, variable._lookup_scaled(segments.ids, max_norm), segments)
    value_dtype = variable.value_dtype
    rows = variable._lookup_scaled(segments.ids, max_norm, arithmetic_dtype(value_dtype))
    of_rows, count = segments.of_ids(), segments.count()
    if combiner == "std":  # as `tf.math.reduce_std` of each segment
        means = tf.math.unsorted_segment_mean(rows, of_rows, count)
        squares = tf.math.squared_difference(rows, tf.gather(means, of_rows))
        variance = tf.math.unsorted_segment_mean(squares, of_rows, count)
        # The gradient of sqrt(0) is infinite. Where all rows are equal, it is zero instead.
        is_zero = tf.equal(variance, 0)
        deviation = tf.sqrt(tf.where(is_zero, tf.ones_like(variance), variance))
        return tf.cast(tf.where(is_zero, tf.zeros_like(variance), deviation), value_dtype)
    pooled = _REDUCTIONS[combiner](rows, of_rows, count)
    empty = tf.equal(segments.row_splits[1:], segments.row_splits[:-1])
    return tf.cast(tf.where(empty[:, None], tf.zeros_like(pooled), pooled), value_dtype)


def _mapped(
    function: Callable[[tf.Tensor], tf.Tensor], rows: tf.Tensor, segments: Segments
) -> tf.Tensor:
    ragged = tf.RaggedTensor.from_row_splits(rows, segments.row_splits, validate=False)
    signature = tf.TensorSpec([rows.shape[-1]], rows.dtype)

    def of_segment(part: tf.Tensor) -> tf.Tensor:
        def zeros() -> tf.Tensor:
            return tf.zeros([rows.shape[-1]], rows.dtype)

        return tf.cond(tf.size(part) > 0, lambda: tf.convert_to_tensor(function(part)), zeros)

    return tf.map_fn(of_segment, ragged, fn_output_signature=signature)
