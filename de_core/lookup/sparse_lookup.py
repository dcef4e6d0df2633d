"""Pooled lookups of sparse and ragged ids."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from de_core.base.checks import received
from de_core.base.no_autograph import no_autograph
from de_core.base.types import Ids, TensorLike
from de_core.lookup.lookup import one_variable
from de_core.lookup.pooling import Combiner, checked_combiner, pooled_rows
from de_core.lookup.segments import (
    by_first_dimension,
    by_last_dimension,
    flat_values,
    with_outer_dimensions,
)
from de_core.tables import keys_and_values
from de_core.variable.trainable_wrapper import TrainableWrapper
from de_core.variable.variable import Variable


@no_autograph
def embedding_lookup_sparse(
    params: Variable | Sequence[Variable],
    sp_ids: tf.SparseTensor | tf.RaggedTensor,
    sp_weights: tf.SparseTensor | tf.RaggedTensor | None,
    name: str | None = "embedding_lookup_sparse",
    combiner: Combiner | None = "mean",
    max_norm: float | None = None,
    return_trainable: bool = False,
) -> Any:
    """Looks up sparse ids and pools the rows of each example.

    Like `tf.nn.embedding_lookup_sparse`, it pools all ids of sp_ids[i, ...] into row i. An example
    without ids becomes a row of zeros. Gradients flow to the rows and to the weights.

    Args:
        params: The Variable, or a list with one Variable.
        sp_ids: A `tf.SparseTensor` in row-major order or a `tf.RaggedTensor`, of the Variable's key
            dtype, any rank.
        sp_weights: A floating-point tensor of the same kind and shape; None for weights of 1.
        name: Name of the operation.
        combiner: "sum", which is sum(weight * row); "mean", the sum divided by sum(weight); or
            "sqrtn", the sum divided by sqrt(sum(weight^2)). None for "mean".
        max_norm: Greatest L2 norm of a row; longer rows are scaled down before pooling. None for no
            limit. The rows in the table stay unchanged.
        return_trainable: Whether to return also a `TrainableWrapper`, which optimizers accept as a
            variable.

    Returns:
        Pooled rows of the value dtype, [d0, dim], where d0 is the first dimension of `sp_ids`. With
        `return_trainable` the pair (rows, `TrainableWrapper`).

    Raises:
        TypeError: `params` is not a Variable; `sp_ids` are neither sparse nor ragged, or have
            another dtype than the keys; or `sp_weights` are not of the same kind.
        ValueError: `combiner` is unknown, the weights have another shape, or `max_norm` is not
            above 0.

    Example:
    >>> import de_core as de
    >>> tags = de.Variable(dim=2, name="tags", initializer=1.0)
    >>> ids = tf.sparse.from_dense(tf.constant([[7, 0, 9], [5, 0, 0]], tf.int64))
    >>> de.embedding_lookup_sparse(tags, ids, None, combiner="sum").numpy().tolist()
    [[2.0, 2.0], [1.0, 1.0]]
    """
    variable = one_variable(params)
    combiner = checked_combiner(combiner)
    with tf.name_scope(name or "embedding_lookup_sparse"):
        _check_kinds(variable, sp_ids, sp_weights)
        segments = by_first_dimension(sp_ids, sp_weights)
        rows = pooled_rows(variable, segments, combiner=combiner, max_norm=max_norm)
        first = sp_ids.shape[0] if sp_ids.shape.rank else None
        rows = tf.ensure_shape(rows, [first, variable.dim])
    return (rows, TrainableWrapper(variable, segments.ids, max_norm)) if return_trainable else rows


@no_autograph
def safe_embedding_lookup_sparse(
    embedding_weights: Variable | Sequence[Variable],
    sparse_ids: tf.SparseTensor | tf.RaggedTensor,
    sparse_weights: tf.SparseTensor | tf.RaggedTensor | None = None,
    combiner: Combiner | None = "mean",
    default_id: TensorLike | None = None,
    name: str | None = "safe_embedding_lookup_sparse",
    max_norm: float | None = None,
    return_trainable: bool = False,
) -> Any:
    """Looks up sparse ids and pools the last dimension. Examples may be empty.

    Like `tf.nn.safe_embedding_lookup_sparse`, but every id is valid, also a negative one. Ids whose
    weight is not positive are dropped, except with combiner "sum". An example without ids becomes
    the row of `default_id`, or zeros if `default_id` is None.

    Args:
        embedding_weights: The Variable, or a list with one Variable.
        sparse_ids: A `tf.SparseTensor` in row-major order or a `tf.RaggedTensor`, of the Variable's
            key dtype, rank 2 or more.
        sparse_weights: A floating-point tensor of the same kind and shape; None for weights of 1.
        combiner: See `embedding_lookup_sparse`.
        default_id: The id to look up for an example without ids, of the key dtype; None for zeros,
            which read and train no row.
        name: Name of the operation.
        max_norm: See `embedding_lookup_sparse`.
        return_trainable: See `embedding_lookup_sparse`.

    Returns:
        Pooled rows of the value dtype, sparse_ids.shape[:-1] + [dim]: a dense tensor, or a
        `tf.RaggedTensor` for ragged ids of rank 3 or more. With `return_trainable` the pair (rows,
        `TrainableWrapper`).

    Raises:
        TypeError: As for `embedding_lookup_sparse`, or `default_id` is not of the key dtype.
        ValueError: As for `embedding_lookup_sparse`, the rank of the ids is 1, or `default_id` is
            not one id.

    Example:
    >>> import de_core as de
    >>> tags = de.Variable(dim=2, name="safe_tags", initializer=1.0)
    >>> ids = tf.ragged.constant([[7, 9], []], dtype=tf.int64)
    >>> de.safe_embedding_lookup_sparse(tags, ids).numpy().tolist()
    [[1.0, 1.0], [0.0, 0.0]]
    """
    variable = one_variable(embedding_weights)
    combiner = checked_combiner(combiner)
    with tf.name_scope(name or "safe_embedding_lookup_sparse"):
        _check_kinds(variable, sparse_ids, sparse_weights)
        if sparse_ids.shape.rank is not None and sparse_ids.shape.rank < 2:
            raise ValueError(
                "`sparse_ids` must be of rank 2 or more: [examples, ..., ids]. Received: "
                f"sparse_ids.shape={sparse_ids.shape}."
            )
        segments = by_last_dimension(sparse_ids, sparse_weights)
        if segments.weights is not None and combiner != "sum":
            segments = segments.where(segments.weights > 0)
        rows = pooled_rows(variable, segments, combiner=combiner, max_norm=max_norm)
        if default_id is not None:
            rows = _with_default(variable, rows, segments.row_splits, default_id, max_norm)
        rows = with_outer_dimensions(sparse_ids, rows, variable.dim)
    return (rows, TrainableWrapper(variable, segments.ids, max_norm)) if return_trainable else rows


def _check_kinds(variable: Variable, ids: Ids, weights: Ids | None) -> None:
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
            f"Weights must be None or, like the ids, a tf.{kind.__name__} of a floating-point "
            f"dtype. {received(weights=weights)}"
        )
    factors = flat_values(weights)
    if not values.shape.is_compatible_with(factors.shape):
        raise ValueError(
            "There must be one weight per id. Received: "
            f"{factors.shape} weights for {values.shape} ids."
        )


def _with_default(
    variable: Variable,
    rows: tf.Tensor,
    splits: tf.Tensor,
    default_id: TensorLike,
    max_norm: float | None,
) -> tf.Tensor:
    """Sets the row of each empty segment to the row of `default_id`, read only for these."""
    default_id = keys_and_values.checked_keys(default_id, variable._table)
    if default_id.shape.num_elements() not in (1, None):
        raise ValueError(f"`default_id` must be one id. {received(default_id=default_id)}")
    empty = tf.where(tf.equal(splits[1:], splits[:-1]))
    ids = tf.fill([tf.shape(empty)[0]], tf.reshape(default_id, []))
    return tf.tensor_scatter_nd_update(rows, empty, variable._lookup_scaled(ids, max_norm))
