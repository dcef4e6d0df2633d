"""One step of an optimizer inside the tables. Every family of optimizers uses this module."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, TypeAlias

import tensorflow as tf

from de_core.base.ops import library
from de_core.base.types import Scalar
from de_core.distributed.request_groups import request_groups
from de_core.optimizers.rule_settings import Power, Settings
from de_core.tables.sharded import ShardedTable

#: A gradient, its table, and the settings of the rule.
Step: TypeAlias = tuple[tf.IndexedSlices, ShardedTable, tf.Tensor]


class Plan(NamedTuple):
    """How a table applies a gradient.

    Attributes:
        rule: The engine's name of the update rule.
        settings: Returns the rule's settings. Takes the dtype in which the engine computes rows,
            float32 or float64.
        decay: Decoupled weight decay, or None.
        average_momentum: The momentum of the rows' moving average, or None for no average.
    """

    rule: str
    settings: Callable[[tf.DType], Settings]
    decay: Scalar | None = None
    average_momentum: Scalar | None = None


def arithmetic_dtype(table: ShardedTable) -> tf.DType:
    """Returns the dtype in which a table computes its rows and keeps its slots."""
    return tf.float64 if table.spec.value_dtype == tf.float64 else tf.float32


def apply(
    plan: Plan,
    trained: Iterable[tuple[tf.IndexedSlices, ShardedTable]],
    owner: tf.Tensor,
    is_decayed: Callable[[ShardedTable], bool] = lambda _: True,
) -> list[tf.Operation | None]:
    """Updates tables by their gradients and returns the operations, if there are any.

    Args:
        plan: How to apply the gradients.
        trained: Pairs of a gradient, with indices [n] and values [n, dim], and its table.
        owner: Scalar string, the name under which the tables keep this optimizer's slots.
        is_decayed: Returns whether the plan's weight decay applies to a table.
    """
    attributes: dict[str, Any] = {"rule": plan.rule, "average": plan.average_momentum is not None}
    vectors: dict[tuple[tf.DType, bool], tf.Tensor] = {}
    steps: list[Step] = []
    is_remote = False
    for gradient, table in trained:
        decayed = plan.decay is not None and is_decayed(table)
        kind = (arithmetic_dtype(table), decayed)
        if kind not in vectors:
            vectors[kind] = _vector(plan, *kind)
        steps.append((gradient, table, vectors[kind]))
        is_remote = is_remote or table.is_remote
    if is_remote:
        return _apply_in_groups(steps, owner, attributes)
    return _apply_by_device(steps, owner, attributes)


def _apply_by_device(
    steps: list[Step], owner: tf.Tensor, attributes: dict[str, Any]
) -> list[tf.Operation | None]:
    """Updates tables of this process. One op updates all tables in memory of one device."""
    groups: dict[str | None, list[Step]] = {}
    operations: list[tf.Operation | None] = []
    for step in steps:
        table = step[1]
        if table.is_one and table.tables[0].pools:
            groups.setdefault(table.spec.devices[0], []).append(step)
        else:
            operations.append(_apply_one(step, owner, attributes))
    for device, chosen in groups.items():
        if len(chosen) == 1:
            operations.append(_apply_one(chosen[0], owner, attributes))
        else:
            operations += _apply_at_once(chosen, device, owner, attributes)
    return operations


def _apply_one(step: Step, owner: tf.Tensor, attributes: dict[str, Any]) -> tf.Operation | None:
    gradient, table, vector = step
    return table.apply(gradient, vector, owner=owner, **attributes)


def _apply_at_once(
    steps: list[Step], device: str | None, owner: tf.Tensor, attributes: dict[str, Any]
) -> list[tf.Operation | None]:
    """Updates tables of one device by one op."""
    keys = [table.keys_of(gradient) for gradient, table, _ in steps]
    vectors = list({id(vector): vector for _, _, vector in steps}.values())
    numbers = {id(vector): number for number, vector in enumerate(vectors)}
    with tf.device(device):
        done = library.de_tables_apply(
            [table.tables[0].resource_handle for _, table, _ in steps],
            keys,
            [gradient.values for gradient, _, _ in steps],
            vectors,
            owner,
            settings_of=[numbers[id(vector)] for _, _, vector in steps],
            **attributes,
        )
    heard = [
        table.updated(own, done)
        for own, (_, table, _) in zip(keys, steps, strict=True)
        if table.on_update is not None
    ]
    return [done, *heard]


def _apply_in_groups(
    steps: list[Step], owner: tf.Tensor, attributes: dict[str, Any]
) -> list[tf.Operation | None]:
    """Updates tables. Tables in other processes share their requests."""
    operations: list[tf.Operation | None] = []
    for carrier, numbers in request_groups(table for _, table, _ in steps):
        chosen = [steps[number] for number in numbers]
        if carrier is not None:
            operations += carrier.apply(chosen, owner, **attributes)
            continue
        operations += _apply_by_device(chosen, owner, attributes)
    return operations


def _vector(plan: Plan, dtype: tf.DType, decayed: bool) -> tf.Tensor:
    """Returns the hyperparameters in the engine's form, float64 [k].

    If only the learning rate and powers change between steps, one op computes all of them.
    """
    values = list(plan.settings(dtype))
    if decayed:
        values.append(plan.decay)
    if plan.average_momentum is not None:
        values.append(plan.average_momentum)
    powers = {number: each for number, each in enumerate(values) if isinstance(each, Power)}
    constants = [each.base if isinstance(each, Power) else each for each in [0.0, *values[1:]]]
    steps = {id(each.step): each.step for each in powers.values()}
    if not all(map(_is_number, constants)) or len(steps) > 1:
        return tf.stack([_as_double(each, dtype) for each in values])
    rate = (
        _as_double(values[0], dtype) if _is_number(values[0]) else tf.convert_to_tensor(values[0])
    )
    return library.de_step_settings(
        rate if rate.dtype in (tf.float32, tf.float64) else tf.cast(rate, tf.float32),
        tf.cast(next(iter(steps.values()), 0), tf.int64),
        tf.constant([float(each) for each in constants], tf.float64),
        powers=list(powers),
        Tpowers=dtype,
    )


def _is_number(value: object) -> bool:
    return isinstance(value, (bool, int, float))


def _as_double(value: Any, dtype: tf.DType) -> tf.Tensor:
    if _is_number(value):  # `tf.cast` would round a Python number to float32 first
        return tf.constant(float(value), tf.float64)
    return tf.cast(value.value(dtype) if isinstance(value, Power) else value, tf.float64)
