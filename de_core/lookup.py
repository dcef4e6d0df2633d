"""Looking ids up for training."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from de_core.config import received
from de_core.plain_python import plain_python
from de_core.trainable_wrapper import TrainableWrapper, lookup_rows
from de_core.variable import Variable


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

    Duplicate ids, and further lookups of the same Variable, add their gradients up.

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
    variable = _one_variable(params)
    with tf.name_scope(name or "embedding_lookup"):
        rows = lookup_rows(variable, ids, max_norm)
    return (rows, TrainableWrapper(variable, ids, max_norm)) if return_trainable else rows


def _one_variable(params: Any) -> Variable:
    if isinstance(params, (list, tuple)) and len(params) == 1:
        params = params[0]
    if not isinstance(params, Variable):
        raise TypeError(
            "`params` must be a de.Variable, for example from de.get_variable. "
            + received(params=params)
        )
    return params
