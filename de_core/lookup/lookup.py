"""Looks up dense and ragged ids of one table or of many, with gradients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from de_core.base.checks import received
from de_core.base.no_autograph import no_autograph
from de_core.base.types import Rows, TensorLike
from de_core.distributed.request_groups import request_groups
from de_core.tables import keys_and_values
from de_core.tables.spec import arithmetic_dtype
from de_core.variable.trainable_wrapper import TrainableWrapper
from de_core.variable.variable import Variable


@no_autograph
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
        TypeError: `params` is not a Variable, or `ids` are sparse or have another dtype than its
            keys.
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
        rows = variable._lookup_scaled(ids, max_norm)
    return (rows, TrainableWrapper(variable, ids, max_norm)) if return_trainable else rows


@no_autograph
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
        TypeError: `params` is not a Variable, or `ids` are sparse or have another dtype than its
            keys.
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
    rows = tf.gather(variable._lookup_scaled(unique, max_norm, real), places)
    rows = tf.cast(rows, variable.value_dtype)
    shape = tf.concat([tf.shape(ids), [variable.dim]], 0)
    return tf.ensure_shape(tf.reshape(rows, shape), ids.shape.concatenate([variable.dim]))


def one_variable(params: Variable | Sequence[Variable]) -> Variable:
    """Returns the Variable to look up."""
    if isinstance(params, (list, tuple)) and len(params) == 1:
        params = params[0]
    if not isinstance(params, Variable):
        raise TypeError(
            "`params` must be a de.Variable, for example from de.get_variable. "
            + received(params=params)
        )
    return params


@no_autograph
def embedding_lookup_many(
    params: Sequence[Variable], ids: Sequence[TensorLike], name: str | None = None
) -> list[tf.Tensor]:
    """Returns the rows of several features. Gradients flow to the rows.

    Lookups of remote tables share requests. All tables of one value dtype on a parameter server
    share one request, which contains each distinct id of a table once. All tables that are divided
    among synchronous workers share three collectives. Tables of this process are looked up one
    after another.

    Args:
        params: The Variable of each feature. Several features may share a Variable.
        ids: The ids of each feature: any shape, the Variable's key dtype, not ragged.
        name: Name of the operation.

    Returns:
        The rows of each feature, ids.shape + [dim].

    Raises:
        TypeError: An element of `params` is not a Variable, or ids have another dtype than its
            keys.
        ValueError: The lengths of `params` and `ids` differ.

    Example:
    >>> import de_core as de
    >>> users, items = de.Variable(dim=2, initializer=1.0), de.Variable(dim=1)
    >>> [rows.shape.as_list() for rows in embedding_lookup_many([users, items], [[7, 8], [[3]]])]
    [[2, 2], [1, 1, 1]]
    """
    variables, ids = [one_variable(each) for each in params], list(ids)
    if len(variables) != len(ids):
        raise ValueError(
            "`ids` must have one element for each Variable in `params`. "
            f"Received: {len(ids)} ids for {len(variables)} Variables."
        )
    with tf.name_scope(name or "embedding_lookup_many"):
        keys = [
            keys_and_values.checked_keys(each, variable._table)
            for each, variable in zip(ids, variables, strict=True)
        ]
        rows: dict[int, tf.Tensor] = {}
        for carrier, numbers in request_groups(each._table for each in variables):
            if carrier is None:
                rows.update(
                    (each, embedding_lookup(variables[each], keys[each])) for each in numbers
                )
            else:
                rows.update(_shared(carrier, variables, keys, numbers))
        return [rows[number] for number in range(len(variables))]


def _shared(
    carrier: Any, variables: list[Variable], keys: list[tf.Tensor], numbers: list[int]
) -> dict[int, tf.Tensor]:
    features: dict[int, list[int]] = {}
    for number in numbers:
        features.setdefault(id(variables[number]._table), []).append(number)
    groups = list(features.values())
    joined = [tf.concat([tf.reshape(keys[each], [-1]) for each in group], 0) for group in groups]
    distinct = [tf.unique(each) for each in joined]
    tables = [variables[group[0]]._table for group in groups]
    found = carrier.find(tables, [unique for unique, _ in distinct])
    rows: dict[int, tf.Tensor] = {}
    for group, (unique, places), values in zip(groups, distinct, found, strict=True):
        # The gradient has one slice per distinct id, so it needs not send the ids again.
        values = variables[group[0]]._anchored(unique, values)
        sizes = [tf.size(keys[each]) for each in group]
        for number, places_of in zip(group, tf.split(places, sizes, num=len(group)), strict=True):
            part, variable = keys[number], variables[number]
            shape = tf.concat([tf.shape(part), [variable.dim]], 0)
            looked_up = tf.reshape(tf.gather(values, places_of), shape)
            looked_up = tf.ensure_shape(looked_up, part.shape.concatenate([variable.dim]))
            variable._collect_penalty(part)
            rows[number] = looked_up
    return rows
