"""Looking many features up at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from de_core.base.plain_python import plain_python
from de_core.distributed.company import companies
from de_core.lookup.lookup import embedding_lookup, one_variable
from de_core.tables import keys_and_values
from de_core.variable.variable import Variable


@plain_python
def embedding_lookup_many(
    params: Sequence[Variable], ids: Sequence[Any], name: str | None = None
) -> list[tf.Tensor]:
    """Returns the rows of several features; gradients train them as those of `embedding_lookup`.

    Tables on parameter servers are asked by one request to each server, however many features and
    tables there are, and distinct ids of a table travel once. Tables of one value dtype share a
    request; those of this process are looked up one by one. Tables that are divided among workers
    in step take three collectives together.

    Args:
        params: The Variable of each feature; several features may share one.
        ids: Of each feature, of its Variable's key dtype, any shape; no `tf.RaggedTensor`.
        name: Of the operation.

    Returns:
        Of each feature its rows, ids.shape + [dim].

    Raises:
        TypeError: One of `params` is no Variable, or ids are not of its key dtype.
        ValueError: There are not as many ids as Variables.

    Example:
    >>> import de_core as de
    >>> users, items = de.Variable(dim=2, initializer=1.0), de.Variable(dim=1)
    >>> [rows.shape.as_list() for rows in embedding_lookup_many([users, items], [[7, 8], [[3]]])]
    [[2, 2], [1, 1, 1]]
    """
    variables, ids = [one_variable(each) for each in params], list(ids)
    if len(variables) != len(ids):
        raise ValueError(
            "There must be ids for each of the Variables. "
            f"Received: {len(ids)} ids for {len(variables)} Variables."
        )
    with tf.name_scope(name or "embedding_lookup_many"):
        keys = [
            keys_and_values.checked_keys(each, variable._table)
            for each, variable in zip(ids, variables, strict=True)
        ]
        rows: dict[int, tf.Tensor] = {}
        for carrier, numbers in companies(each._table for each in variables):
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
    for group, (_, places), values in zip(groups, distinct, found, strict=True):
        sizes = [tf.size(keys[each]) for each in group]
        for number, places_of in zip(group, tf.split(places, sizes, num=len(group)), strict=True):
            part, variable = keys[number], variables[number]
            shape = tf.concat([tf.shape(part), [variable.dim]], 0)
            looked_up = tf.reshape(tf.gather(values, places_of), shape)
            looked_up = tf.ensure_shape(looked_up, part.shape.concatenate([variable.dim]))
            rows[number] = variable._rows.recorded(part, looked_up)
    return rows
