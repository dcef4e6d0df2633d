"""Erases ids from all tables of a model: `de.erase`."""

from __future__ import annotations

from collections.abc import Mapping

import tensorflow as tf

from de_core.base.checks import received, require_eager
from de_core.base.types import Target, TensorLike
from de_core.checkpoint.targets import tables_of
from de_core.tables.keys_and_values import converted


def erase(model: Target, ids: TensorLike | Mapping[str, TensorLike]) -> dict[str, int]:
    """Removes the rows of ids from all tables of a model, with their optimizer slots.

    Call it between steps: a later step that looks an id up may insert a new row. Files that were
    written before keep the rows; `docs/howto/erasing.md` says where, and until when.

    Args:
        model: A Variable, a list or dict of them, or a module, layer or model.
        ids: Ids of any shape, for all tables; or a dict of ids by table name. A plain id is removed
            from every table, so pass a dict if a user and an item may have the same id.

    Returns:
        The number of rows removed, by table name.

    Raises:
        TypeError: The ids have another dtype than a table. Nothing is removed then.
        ValueError: The model has no tables, or none of a name in `ids`.
        RuntimeError: Called in a graph.

    Example:
    >>> import de_core as de
    >>> users = de.Variable(dim=1, name="users")
    >>> users.upsert([1, 2], [[1.0], [2.0]])
    >>> erase(users, [2, 3])
    {'users': 1}
    """
    require_eager("de.erase", "In a graph, use Variable.remove.")
    tables = tables_of(model)
    wanted = dict(ids) if isinstance(ids, Mapping) else dict.fromkeys(tables, ids)
    unknown = sorted(set(wanted) - set(tables))
    if unknown:
        raise ValueError(
            f"`ids` must name tables of the model, {sorted(tables)}. {received(ids=unknown)}"
        )
    keys = {}
    for name, own in wanted.items():
        made = converted("ids", own, tables[name].spec.key_dtype, name)
        keys[name] = tf.unique(tf.reshape(made, [-1])).y
    removed = {}
    for name, own in keys.items():
        removed[name] = int(tf.math.count_nonzero(tables[name].contains(own)))
        tables[name].erase(own)
    return removed
