"""Looks up dense and ragged ids, with gradients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from de_core.base.checks import received
from de_core.base.plain_python import plain_python
from de_core.base.types import Rows, TensorLike
from de_core.tables import keys_and_values
from de_core.tables.spec import arithmetic_dtype
from de_core.variable.trainable_wrapper import TrainableWrapper
from de_core.variable.variable import Variable


@plain_python
def embedding_lookup(
    params: Variable | Sequence[Variable],
    ids: TensorLike | tf.RaggedTensor,
    name: str | None = None,
    max_norm: float | None = None,
    return_trainable: bool = False,
) -> Any:
    """Returns the rows of `ids`. Gradients flow to the rows.

    The gradients of duplicate ids, and of several lookups of the same Variable, are summed, also in
    branches and loops. There are two limits: in a `tf.while_loop`, and with string ids in a branch
    of `tf.cond`, do not look up ids in a `tf.function` that is called there. Its gradient cannot
    leave the loop or branch. Look up the ids directly in the loop or branch, or outside.

    Args:
        params: The Variable, or a list with one Variable.
        ids: Ids of the Variable's key dtype, any shape; may be a `tf.RaggedTensor`.
        name: Name of the operation.
        max_norm: Greatest L2 norm of a row in the result; longer rows are scaled down. None for no
            limit. The rows in the table stay unchanged.
        return_trainable: Whether to return also a `TrainableWrapper`, which optimizers accept as a
            variable.

    Returns:
        Rows, ids.shape + [dim]. With `return_trainable` the pair (rows, `TrainableWrapper`).

    Raises:
        TypeError: `params` is not a Variable, or `ids` have another dtype than its keys.
        ValueError: `max_norm` is not above 0.

    Example:
    >>> import de_core as de
    >>> items = de.Variable(dim=2, name="items", initializer=1.0)
    >>> with tf.GradientTape() as tape:
    ...     loss = tf.reduce_sum(de.embedding_lookup(items, [3, 3, 5]))
    >>> gradient = tape.gradient(loss, items.trainable_variables)[0]
    >>> gradient.indices.numpy().tolist()
    [3, 3, 5]
    """
    variable = one_variable(params)
    with tf.name_scope(name or "embedding_lookup"):
        rows = variable._rows.lookup_scaled(ids, max_norm)
    return (rows, TrainableWrapper(variable, ids, max_norm)) if return_trainable else rows


@plain_python
def embedding_lookup_unique(
    params: Variable | Sequence[Variable],
    ids: TensorLike | tf.RaggedTensor,
    name: str | None = None,
    max_norm: float | None = None,
    return_trainable: bool = False,
) -> Any:
    """Returns the same as `embedding_lookup`, but reads the row of each distinct id only once.

    The gradient has one slice per distinct id. This is faster if ids repeat often and rows are
    long.

    Args:
        params: See `embedding_lookup`, also for the following arguments.
        ids: Ids of the Variable's key dtype, any shape; may be a `tf.RaggedTensor`.
        name: Name of the operation.
        max_norm: Greatest L2 norm of a row in the result; None for no limit.
        return_trainable: Whether to return also a `TrainableWrapper`.

    Returns:
        Rows, ids.shape + [dim]. With `return_trainable` the pair (rows, `TrainableWrapper`).

    Raises:
        TypeError: `params` is not a Variable, or `ids` have another dtype than its keys.
        ValueError: `max_norm` is not above 0.

    Example:
    >>> import de_core as de
    >>> items = de.Variable(dim=2, name="unique_items", initializer=1.0)
    >>> with tf.GradientTape() as tape:
    ...     loss = tf.reduce_sum(de.embedding_lookup_unique(items, [3, 3, 5]))
    >>> tape.gradient(loss, items.trainable_variables)[0].indices.numpy().tolist()
    [3, 5]
    """
    variable = one_variable(params)
    with tf.name_scope(name or "embedding_lookup_unique"):
        rows = _unique_rows(variable, ids, max_norm)
    return (rows, TrainableWrapper(variable, ids, max_norm)) if return_trainable else rows


def _unique_rows(
    variable: Variable, ids: TensorLike | tf.RaggedTensor, max_norm: float | None
) -> Rows:
    if isinstance(ids, tf.RaggedTensor):
        keys_and_values.note_kind("ragged", variable._table)
        return ids.with_flat_values(_unique_rows(variable, ids.flat_values, max_norm))
    ids = keys_and_values.checked_keys(ids, variable._table)
    unique, places = tf.unique(tf.reshape(ids, [-1]))
    # Do not round rows before the gather: their gradients would be summed in the rounded dtype.
    real = None if max_norm is None else arithmetic_dtype(variable.value_dtype)
    rows = tf.gather(variable._rows.lookup_scaled(unique, max_norm, real), places)
    rows = tf.cast(rows, variable.value_dtype)
    shape = tf.concat([tf.shape(ids), [variable.dim]], 0)
    return tf.ensure_shape(tf.reshape(rows, shape), ids.shape.concatenate([variable.dim]))


def one_variable(params: Variable | Sequence[Variable]) -> Variable:
    """Returns the Variable to look up.

    Raises:
        TypeError: `params` is something else.
    """
    if isinstance(params, (list, tuple)) and len(params) == 1:
        params = params[0]
    if not isinstance(params, Variable):
        raise TypeError(
            "`params` must be a de.Variable, for example from de.get_variable. "
            + received(params=params)
        )
    return params
