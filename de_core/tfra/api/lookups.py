"""Lookups with the arguments of `tfra`.

`partition_strategy` and `validate_indices` have no effect. With `return_trainable` a lookup returns
also a `TrainableWrapper`. Other arguments are described in `de.embedding_lookup` and
`de.embedding_lookup_sparse`.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from de_core.base.no_autograph import no_autograph
from de_core.base.types import TensorLike
from de_core.lookup import lookup, segments, sparse_lookup
from de_core.tables import keys_and_values
from de_core.tfra.api.variable import Variable
from de_core.tfra.api.wrappers import TrainableWrapper


@no_autograph
def embedding_lookup(
    params: Any,
    ids: TensorLike | tf.RaggedTensor,
    partition_strategy: str | None = None,
    name: str | None = None,
    validate_indices: bool | None = None,
    max_norm: float | None = None,
    return_trainable: bool = False,
) -> Any:
    """Returns the rows of `ids`; see `de.embedding_lookup`."""
    del partition_strategy, validate_indices
    variable, max_norm = variable_of(params), _norm_of(params, max_norm)
    if isinstance(variable, Variable):
        rows = variable.embedding_lookup(ids, name, max_norm)[0]
    else:
        rows = lookup.embedding_lookup(variable, ids, name, max_norm)
    if not return_trainable:
        return rows
    return rows, TrainableWrapper(variable, ids, max_norm, name=name)


@no_autograph
def embedding_lookup_unique(
    params: Any,
    ids: TensorLike | tf.RaggedTensor,
    partition_strategy: str | None = None,
    name: str | None = None,
    validate_indices: bool | None = None,
    max_norm: float | None = None,
    return_trainable: bool = False,
) -> Any:
    """Returns the rows of `ids`, and reads each distinct id once; see `embedding_lookup`."""
    del partition_strategy, validate_indices
    variable, max_norm = variable_of(params), _norm_of(params, max_norm)
    if isinstance(variable, Variable) and variable.value_dtype == tf.string:
        rows = variable.lookup(ids)
    else:
        rows = lookup.embedding_lookup_unique(variable, ids, name=name, max_norm=max_norm)
    flat = ids.flat_values if isinstance(ids, tf.RaggedTensor) else ids
    return _returned(rows, variable, flat, max_norm, name, return_trainable)


@no_autograph
def embedding_lookup_sparse(
    params: Any,
    sp_ids: tf.SparseTensor | tf.RaggedTensor,
    sp_weights: tf.SparseTensor | tf.RaggedTensor | None,
    partition_strategy: str | None = None,
    name: str | None = "embedding_lookup_sparse",
    combiner: Any = "mean",
    max_norm: float | None = None,
    return_trainable: bool = False,
) -> Any:
    """Looks up sparse ids and pools the rows of each example; see `de.embedding_lookup_sparse`."""
    del partition_strategy
    variable, max_norm = variable_of(params), _norm_of(params, max_norm)
    rows = sparse_lookup.embedding_lookup_sparse(
        variable, sp_ids, sp_weights, name=name, combiner=combiner, max_norm=max_norm
    )
    return _returned(rows, variable, segments.flat_values(sp_ids), max_norm, name, return_trainable)


@no_autograph
def safe_embedding_lookup_sparse(
    embedding_weights: Any,
    sparse_ids: tf.SparseTensor | tf.RaggedTensor,
    sparse_weights: tf.SparseTensor | tf.RaggedTensor | None = None,
    combiner: Any = "mean",
    default_id: TensorLike | None = None,
    name: str | None = "safe_embedding_lookup_sparse",
    partition_strategy: str | None = None,
    max_norm: float | None = None,
    return_trainable: bool = False,
) -> Any:
    """Looks up sparse ids and pools the last dimension; see `de.safe_embedding_lookup_sparse`."""
    del partition_strategy
    variable, max_norm = variable_of(embedding_weights), _norm_of(embedding_weights, max_norm)
    rows = sparse_lookup.safe_embedding_lookup_sparse(
        variable,
        sparse_ids,
        sparse_weights,
        combiner=combiner,
        default_id=default_id,
        name=name,
        max_norm=max_norm,
    )
    return _returned(
        rows, variable, segments.flat_values(sparse_ids), max_norm, name, return_trainable
    )


def variable_of(params: Any) -> Any:
    """Returns the Variable of a Variable, of a list with one Variable, or of a wrapper."""
    return lookup.one_variable(params.params if isinstance(params, TrainableWrapper) else params)


def _norm_of(params: Any, max_norm: float | None) -> float | None:
    """Returns the `max_norm` of a lookup, or of the wrapper that it looks up if it has none."""
    is_of_wrapper = max_norm is None and isinstance(params, TrainableWrapper)
    return params.max_norm if is_of_wrapper else max_norm


def _returned(rows: Any, variable: Any, ids: Any, max_norm: Any, name: Any, wrapped: bool) -> Any:
    """Returns the rows of a lookup, with a wrapper of the distinct ids if `wrapped`."""
    if not wrapped:
        return rows
    keys = keys_and_values.checked_keys(ids, variable._table)
    unique = tf.unique(tf.reshape(keys, [-1]))[0]
    return rows, TrainableWrapper(variable, unique, max_norm, name=name)
