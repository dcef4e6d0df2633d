"""Pooled lookups of sparse and ragged ids."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from de_core.base.checks import received
from de_core.base.plain_python import plain_python
from de_core.lookup.lookup import one_variable
from de_core.lookup.pooling import Combiner, checked_combiner, pooled_rows
from de_core.lookup.segments import (
    Segments,
    by_first_dimension,
    by_last_dimension,
    flat_values,
    with_outer_dimensions,
)
from de_core.tables import keys_and_values
from de_core.variable.trainable_wrapper import TrainableWrapper
from de_core.variable.variable import Variable


@plain_python
def embedding_lookup_sparse(
    params: Variable,
    sp_ids: Any,
    sp_weights: Any,
    partition_strategy: str | None = None,
    name: str | None = "embedding_lookup_sparse",
    combiner: Combiner | None = "mean",
    max_norm: float | None = None,
    return_trainable: bool = False,
) -> Any:
    """Looks up sparse ids and pools the rows of each example.

    As `tf.nn.embedding_lookup_sparse`: all ids of one index of the first dimension are pooled,
    whatever the further dimensions. An example without ids, also one at the end, is a row of zeros.
    Gradients flow to the rows and to the weights.

    Args:
        params: The Variable, or a list of just one.
        sp_ids: A `tf.SparseTensor` in row-major order or a `tf.RaggedTensor`, of the Variable's key
            dtype, of any rank.
        sp_weights: Of the same kind and shape, of a floating-point dtype; None for weights of 1.
        partition_strategy: Not used: the Variable's `partitioner` divides the keys.
        name: Of the operation.
        combiner: "sum" of weight * row; "mean", that over the sum of the weights; or "sqrtn", that
            over the root of the sum of their squares. None is "mean".
        max_norm: If given, rows longer than this are scaled down to it before they are pooled. The
            table keeps them as they are.
        return_trainable: Whether to return what an optimizer trains as well.

    Returns:
        Of the value dtype, [d0, dim]; with `return_trainable` the pair (rows, `TrainableWrapper`).

    Raises:
        TypeError: `params` is no Variable, `sp_ids` are neither sparse nor ragged or not of the key
            dtype, or `sp_weights` are of another kind.
        ValueError: `combiner` is none of the three, or the weights are of another shape.

    Example:
    >>> import de_core as de
    >>> tags = de.Variable(dim=2, name="tags", initializer=1.0)
    >>> ids = tf.sparse.from_dense(tf.constant([[7, 0, 9], [5, 0, 0]], tf.int64))
    >>> de.embedding_lookup_sparse(tags, ids, None, combiner="sum").numpy().tolist()
    [[2.0, 2.0], [1.0, 1.0]]
    """
    del partition_strategy
    variable = one_variable(params)
    combiner = checked_combiner(combiner)
    with tf.name_scope(name or "embedding_lookup_sparse"):
        _check_kinds(variable, sp_ids, sp_weights)
        segments = by_first_dimension(sp_ids, sp_weights)
        rows = _pooled(variable, segments, combiner, max_norm)
        first = sp_ids.shape[0] if sp_ids.shape.rank else None
        rows = tf.ensure_shape(rows, [first, variable.dim])
    wrapper = TrainableWrapper(variable, segments.ids, max_norm) if return_trainable else None
    return (rows, wrapper) if return_trainable else rows


@plain_python
def safe_embedding_lookup_sparse(
    embedding_weights: Variable,
    sparse_ids: Any,
    sparse_weights: Any = None,
    combiner: Combiner | None = "mean",
    default_id: Any = None,
    name: str | None = "safe_embedding_lookup_sparse",
    partition_strategy: str | None = None,
    max_norm: float | None = None,
    return_trainable: bool = False,
) -> Any:
    """Looks up sparse ids and pools the last dimension; examples may be empty.

    As `tf.nn.safe_embedding_lookup_sparse`, but that every id is valid: a table has rows for
    negative ids too. Ids of a weight that is not positive are left out, unless they are just
    summed. An example without ids is the row of `default_id`, or of zeros; then no row is read or
    trained for it.

    Args:
        embedding_weights: The Variable, or a list of just one.
        sparse_ids: A `tf.SparseTensor` in row-major order or a `tf.RaggedTensor`, of the Variable's
            key dtype, of rank 2 or more.
        sparse_weights: Of the same kind and shape, of a floating-point dtype; None for weights of
            1.
        combiner: See `embedding_lookup_sparse`.
        default_id: The id for an example without any, of the key dtype; None for zeros.
        name: Of the operation.
        partition_strategy: Not used: the Variable's `partitioner` divides the keys.
        max_norm: See `embedding_lookup_sparse`.
        return_trainable: Whether to return what an optimizer trains as well.

    Returns:
        Of the value dtype, sparse_ids.shape[:-1] + [dim]: a tensor, or for ragged ids of rank 3 or
        more a `tf.RaggedTensor`. With `return_trainable` the pair (rows, `TrainableWrapper`).

    Raises:
        TypeError: As `embedding_lookup_sparse`, or `default_id` is not of the key dtype.
        ValueError: As `embedding_lookup_sparse`, or the ids are of rank 1.

    Example:
    >>> import de_core as de
    >>> tags = de.Variable(dim=2, name="safe_tags", initializer=1.0)
    >>> ids = tf.ragged.constant([[7, 9], []], dtype=tf.int64)
    >>> de.safe_embedding_lookup_sparse(tags, ids).numpy().tolist()
    [[1.0, 1.0], [0.0, 0.0]]
    """
    del partition_strategy
    variable = one_variable(embedding_weights)
    combiner = checked_combiner(combiner)
    with tf.name_scope(name or "safe_embedding_lookup_sparse"):
        _check_kinds(variable, sparse_ids, sparse_weights)
        if sparse_ids.shape.rank is not None and sparse_ids.shape.rank < 2:
            raise ValueError(
                "`sparse_ids` must be of rank 2 or more, examples of ids. Received: "
                f"sparse_ids.shape={sparse_ids.shape}."
            )
        segments = by_last_dimension(sparse_ids, sparse_weights)
        if segments.weights is not None and combiner != "sum":
            segments = segments.where(segments.weights > 0)
        rows = _pooled(variable, segments, combiner, max_norm)
        if default_id is not None:
            rows = _with_default(variable, rows, segments.row_splits, default_id, max_norm)
        rows = with_outer_dimensions(sparse_ids, rows, variable.dim)
    wrapper = TrainableWrapper(variable, segments.ids, max_norm) if return_trainable else None
    return (rows, wrapper) if return_trainable else rows


def _pooled(
    variable: Variable, segments: Segments, combiner: Combiner, max_norm: float | None
) -> tf.Tensor:
    return pooled_rows(
        variable,
        segments.ids,
        segments.row_splits,
        weights=segments.weights,
        combiner=combiner,
        max_norm=max_norm,
    )


def _check_kinds(variable: Variable, ids: Any, weights: Any) -> None:
    kinds = (tf.SparseTensor, tf.RaggedTensor)
    if not isinstance(ids, kinds):
        raise TypeError(
            "Ids must be a tf.SparseTensor or a tf.RaggedTensor; for a dense tensor use "
            f"tf.RaggedTensor.from_tensor or de.embedding_lookup. {received(ids=ids)}"
        )
    values = flat_values(ids)
    keys_and_values.checked_keys(values, variable._table)
    if weights is None:
        return
    kind = tf.SparseTensor if isinstance(ids, tf.SparseTensor) else tf.RaggedTensor
    if not isinstance(weights, kind) or not weights.dtype.is_floating:
        raise TypeError(
            f"Weights must be None or, like the ids, a tf.{kind.__name__}, of a floating-point "
            f"dtype. {received(weights=weights)}"
        )
    factors = flat_values(weights)
    if not values.shape.is_compatible_with(factors.shape):
        raise ValueError(
            "There must be one weight an id. Received: "
            f"{factors.shape} weights for {values.shape} ids."
        )


def _with_default(
    variable: Variable, rows: tf.Tensor, splits: tf.Tensor, default_id: Any, max_norm: float | None
) -> tf.Tensor:
    """Puts the row of `default_id` where a segment is empty, and reads it only then."""
    default_id = keys_and_values.checked_keys(default_id, variable._table)
    empty = tf.where(tf.equal(splits[1:], splits[:-1]))
    ids = tf.fill([tf.shape(empty)[0]], tf.reshape(default_id, []))
    return tf.tensor_scatter_nd_update(rows, empty, variable._rows.lookup_scaled(ids, max_norm))
