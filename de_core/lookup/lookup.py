"""Looking ids up for training."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from de_core.base.checks import received
from de_core.base.plain_python import plain_python
from de_core.tables import keys_and_values
from de_core.variable.trainable_wrapper import TrainableWrapper
from de_core.variable.variable import Variable


@plain_python
def embedding_lookup(
    params: Variable,
    ids: Any,
    partition_strategy: str | None = None,
    name: str | None = None,
    validate_indices: bool | None = None,
    max_norm: float | None = None,
    return_trainable: bool = False,
) -> Any:
    """Returns the rows of `ids`; the gradient of the result trains them.

    Duplicate ids, and further lookups of the same Variable, add their gradients up, also those in
    branches and loops. Only a `tf.function` that is called in a `tf.while_loop`, or with string ids
    in a branch of `tf.cond`, cannot hand the gradient of a lookup out of it: look the ids up in the
    loop or branch itself, or outside.

    Args:
        params: The Variable, or a list of just one.
        ids: Of the Variable's key dtype, any shape, also a `tf.RaggedTensor`.
        partition_strategy: Not used: the Variable's `partitioner` divides the keys.
        name: Of the operation.
        validate_indices: Not used: every id is valid.
        max_norm: If given, rows longer than this are scaled down to it in the result. The table
            keeps them as they are.
        return_trainable: Whether to return what an optimizer trains as well.

    Returns:
        Rows, ids.shape + [dim]; with `return_trainable` the pair (rows, `TrainableWrapper`).

    Raises:
        TypeError: `params` is no Variable, or `ids` are not of its key dtype.

    Example:
    >>> import de_core as de
    >>> items = de.Variable(dim=2, name="items", initializer=1.0)
    >>> with tf.GradientTape() as tape:
    ...     loss = tf.reduce_sum(de.embedding_lookup(items, [3, 3, 5]))
    >>> gradient = tape.gradient(loss, items.trainable_variables)[0]
    >>> gradient.indices.numpy().tolist()
    [3, 3, 5]
    """
    del partition_strategy, validate_indices
    variable = one_variable(params)
    with tf.name_scope(name or "embedding_lookup"):
        rows = variable._rows.lookup_scaled(ids, max_norm)
    return (rows, TrainableWrapper(variable, ids, max_norm)) if return_trainable else rows


@plain_python
def embedding_lookup_unique(
    params: Variable,
    ids: Any,
    partition_strategy: str | None = None,
    name: str | None = None,
    validate_indices: bool | None = None,
    max_norm: float | None = None,
    return_trainable: bool = False,
) -> Any:
    """Returns what `embedding_lookup` does, and reads each distinct id once.

    Worth it where an id is often repeated and the rows are long: the gradient too has one slice for
    each distinct id.

    Args:
        params: See `embedding_lookup`, as for all further arguments.
        ids: Of the Variable's key dtype, any shape, also a `tf.RaggedTensor`.
        partition_strategy: Not used.
        name: Of the operation.
        validate_indices: Not used.
        max_norm: If given, rows longer than this are scaled down to it in the result.
        return_trainable: Whether to return what an optimizer trains as well.

    Returns:
        Rows, ids.shape + [dim]; with `return_trainable` the pair (rows, `TrainableWrapper`).

    Raises:
        TypeError: `params` is no Variable, or `ids` are not of its key dtype.

    Example:
    >>> import de_core as de
    >>> items = de.Variable(dim=2, name="unique_items", initializer=1.0)
    >>> with tf.GradientTape() as tape:
    ...     loss = tf.reduce_sum(de.embedding_lookup_unique(items, [3, 3, 5]))
    >>> tape.gradient(loss, items.trainable_variables)[0].indices.numpy().tolist()
    [3, 5]
    """
    del partition_strategy, validate_indices
    variable = one_variable(params)
    with tf.name_scope(name or "embedding_lookup_unique"):
        rows = _unique_rows(variable, ids, max_norm)
    return (rows, TrainableWrapper(variable, ids, max_norm)) if return_trainable else rows


def _unique_rows(variable: Variable, ids: Any, max_norm: float | None) -> Any:
    if isinstance(ids, tf.RaggedTensor):
        keys_and_values.note_kind("ragged", variable._table)
        return ids.with_flat_values(_unique_rows(variable, ids.flat_values, max_norm))
    ids = keys_and_values.checked_keys(ids, variable._table)
    unique, places = tf.unique(tf.reshape(ids, [-1]))
    rows = tf.gather(variable._rows.lookup_scaled(unique, max_norm), places)
    shape = tf.concat([tf.shape(ids), [variable.dim]], 0)
    return tf.ensure_shape(tf.reshape(rows, shape), ids.shape.concatenate([variable.dim]))


def one_variable(params: Any) -> Variable:
    """Returns the Variable to look up.

    Args:
        params: It, or a list of just it.

    Raises:
        TypeError: It is something else.
    """
    if isinstance(params, (list, tuple)) and len(params) == 1:
        params = params[0]
    if not isinstance(params, Variable):
        raise TypeError(
            "`params` must be a de.Variable, for example from de.get_variable. "
            + received(params=params)
        )
    return params
