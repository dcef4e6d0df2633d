"""Sharing Variables by name, by the rules of `tf.compat.v1.get_variable`."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from de_core.config import TableSpec, received
from de_core.plain_python import plain_python
from de_core.sharding import Partitioner, default_partition_fn
from de_core.variable import Variable

# In eager mode a Variable is shared as long as someone holds it; a graph keeps its own alive.
_eager: weakref.WeakValueDictionary[str, Variable] = weakref.WeakValueDictionary()
_by_graph: weakref.WeakKeyDictionary[Any, dict[str, Variable]] = weakref.WeakKeyDictionary()


@plain_python
def get_variable(
    name: str,
    key_dtype: Any = tf.int64,
    value_dtype: Any = tf.float32,
    dim: int = 1,
    devices: Sequence[str] | None = None,
    partitioner: Partitioner | None = default_partition_fn,
    shared_name: str | None = "get_variable",
    initializer: Any = None,
    trainable: bool = True,
    checkpoint: bool = True,
    init_size: int = 0,
    kv_creator: Any = None,
    restrict_policy: Any = None,
    bp_v2: bool = False,
    short_file_name: bool = False,
) -> Variable:
    """Returns the Variable of this name, or makes it.

    The name is prefixed by the current `tf.compat.v1.variable_scope`. In eager mode and in
    `tf.function` an existing Variable is shared; in a graph the scope's `reuse` decides, as it does
    for `tf.compat.v1.get_variable`.

    Args:
        name: Not empty.
        key_dtype: See `Variable`, like all further arguments.
        value_dtype: Of the rows.
        dim: Values a row.
        devices: One table is made on each.
        partitioner: Divides the keys among the tables.
        shared_name: Not used.
        initializer: What a key without a row reads as.
        trainable: Whether lookups record gradients.
        checkpoint: Whether checkpoints include the rows.
        init_size: Rows to make room for at once.
        kv_creator: Only None yet.
        restrict_policy: Only None yet.
        bp_v2: Kept for compatibility.
        short_file_name: Kept for compatibility.

    Raises:
        TypeError: `name` is no string, or an argument is of a wrong type.
        ValueError: The name exists with another dtype, dim or device list; or the scope forbids to
            make or to share it; or an argument is out of range.

    Example:
    >>> import de_core as de
    >>> first = de.get_variable("shared", dim=4)
    >>> de.get_variable("shared", dim=4) is first
    True
    """
    if not isinstance(name, str) or not name:
        raise TypeError(f"`name` must be a non-empty string. {received(name=name)}")
    scope = tf.compat.v1.get_variable_scope()
    full_name = f"{scope.name}/{name}" if scope.name else name
    with tf.init_scope():
        variables = _variables()
        existing = variables.get(full_name)
        # A function is traced again and again: there, an existing Variable is always shared.
        reuse = tf.compat.v1.AUTO_REUSE if tf.executing_eagerly() else scope.reuse
        if existing is not None:
            spec = TableSpec.checked(key_dtype, value_dtype, dim, devices)
            _check_sharing(existing, spec, full_name, reuse)
            return existing
        if reuse is True:
            raise ValueError(
                f"Variable {full_name!r} must exist under reuse=True. Make it first, or set "
                f"reuse=tf.compat.v1.AUTO_REUSE in the variable_scope. {received(name=name)}"
            )
        variables[full_name] = created = Variable(
            key_dtype=key_dtype,
            value_dtype=value_dtype,
            dim=dim,
            devices=devices,
            partitioner=partitioner,
            shared_name=shared_name,
            name=full_name,
            initializer=initializer,
            trainable=trainable,
            checkpoint=checkpoint,
            init_size=init_size,
            kv_creator=kv_creator,
            restrict_policy=restrict_policy,
            bp_v2=bp_v2,
            short_file_name=short_file_name,
        )
        return created


def _variables() -> Any:
    if tf.executing_eagerly():
        return _eager
    return _by_graph.setdefault(tf.compat.v1.get_default_graph(), {})


def _check_sharing(existing: Variable, spec: TableSpec, name: str, reuse: Any) -> None:
    difference = existing.spec.difference(spec)
    if difference:
        raise ValueError(
            f"Variable {name!r} must be requested with the properties it has, or under another "
            f"name. Received: {difference}."
        )
    if not reuse:
        raise ValueError(
            f"Variable {name!r} already exists, and its variable_scope does not share it. Set "
            "reuse=True or reuse=tf.compat.v1.AUTO_REUSE in the variable_scope. "
            + received(name=name)
        )
