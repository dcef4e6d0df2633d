"""Applies the defaults of a `tf.compat.v1.variable_scope` to the arguments of a Variable."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from de_core.base.checks import received

# A scope's partitioner needs a shape. A table has no height, so we use a large number of rows.
_ROWS = 2**62
_MOST_TABLES = 1024


def applied(scope: Any, arguments: dict[str, Any], name: str) -> dict[str, Any]:
    """Returns the arguments of `Variable`, with the scope's defaults for missing arguments.

    Raises:
        NotImplementedError: The scope has a constraint.
        ValueError: The scope's partitioner does not divide the rows into 1 to 1024 shards, or into
            another number than there are `devices`.
    """
    if scope.constraint is not None:
        raise NotImplementedError(
            f"A variable_scope with a `constraint` cannot hold the dynamic Variable {name}: no "
            f"optimizer would apply it to rows. {received(constraint=scope.constraint)}"
        )
    arguments = dict(arguments)
    for argument in ("initializer", "regularizer"):
        if arguments.get(argument) is None:
            arguments[argument] = getattr(scope, argument)
    if scope.partitioner is not None:
        arguments["devices"] = _divided(scope.partitioner, arguments, name)
    return arguments


def _divided(partitioner: Any, arguments: dict[str, Any], name: str) -> Sequence[str]:
    """Returns one device per shard. The partitioner of the scope defines the number of shards."""
    shape = tf.TensorShape([_ROWS, arguments["dim"]])
    parts = list(partitioner(shape=shape, dtype=tf.as_dtype(arguments["value_dtype"])))
    if len(parts) != 2 or parts[1] != 1 or not 1 <= parts[0] <= _MOST_TABLES:
        raise ValueError(
            f"The partitioner of a variable_scope must divide the rows of the dynamic Variable "
            f"{name} among 1 to {_MOST_TABLES} shards and keep each row whole. "
            f"Received: {parts} parts of a variable of shape [rows, {arguments['dim']}]. A table "
            "has no height: if the partitioner divides by size, pass it a maximum number of shards."
        )
    count, devices = int(parts[0]), arguments["devices"]
    if devices is None:
        return ["/CPU:0"] * count
    named = [devices] if isinstance(devices, str) else list(devices)
    if len(named) != count:
        raise ValueError(
            f"`devices` of Variable {name} must have one device for each of the {count} shards "
            f"that the partitioner of its variable_scope makes. {received(devices=devices)}"
        )
    return named
