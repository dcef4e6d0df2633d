"""Looks up the ids of many features at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from de_core.base.plain_python import plain_python
from de_core.base.types import TensorLike
from de_core.distributed.request_groups import request_groups
from de_core.lookup.lookup import embedding_lookup, one_variable
from de_core.tables import keys_and_values
from de_core.variable.variable import Variable


@plain_python
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
        values = variables[group[0]]._rows.anchored(unique, values)
        sizes = [tf.size(keys[each]) for each in group]
        for number, places_of in zip(group, tf.split(places, sizes, num=len(group)), strict=True):
            part, variable = keys[number], variables[number]
            shape = tf.concat([tf.shape(part), [variable.dim]], 0)
            looked_up = tf.reshape(tf.gather(values, places_of), shape)
            looked_up = tf.ensure_shape(looked_up, part.shape.concatenate([variable.dim]))
            variable._rows.collect_penalty(part)
            rows[number] = looked_up
    return rows
