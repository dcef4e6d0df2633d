"""One step of an optimizer inside the tables. Every family of optimizers uses this module."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from de_core.base.ops import library
from de_core.distributed.request_groups import request_groups
from de_core.optimizers.clipping import Trained
from de_core.optimizers.rules import Plan, Power, as_scalar
from de_core.tables.table_step import TableStep

if TYPE_CHECKING:
    from de_core.optimizers.keras3.table_optimizer import TableOptimizer


def vector(plan: Plan, dtype: tf.DType, decayed: bool) -> tf.Tensor:
    """Returns the hyperparameters of a step in the engine's form, float64 [k].

    If only the learning rate and powers change between steps, one op computes all of them.
    """
    values = [] if plan.rule is None else plan.rule.settings(plan, dtype)
    if decayed:
        values.append(plan.decay)
    if plan.average_momentum is not None:
        values.append(plan.average_momentum)
    constants, powers = [0.0], []
    step: Any = 0
    for place, value in enumerate(values[1:], 1):
        if isinstance(value, Power):
            powers.append(place)
            step = value.step
            value = value.base
        if not isinstance(value, (bool, int, float)):
            values = [each.value(dtype) if isinstance(each, Power) else each for each in values]
            return tf.stack([as_scalar(each, tf.float64) for each in values])
        constants.append(float(value))
    rate: Any = values[0]
    if isinstance(rate, (bool, int, float)):
        rate = as_scalar(rate, tf.float64)
    rate = tf.convert_to_tensor(rate)
    return library.de_step_settings(
        rate if rate.dtype in (tf.float32, tf.float64) else tf.cast(rate, tf.float32),
        tf.cast(step, tf.int64),
        tf.constant(constants, tf.float64),
        powers=powers,
        Tpowers=dtype,
    )


def run(steps: list[TableStep]) -> list[tf.Operation | None]:
    """Updates tables, of one or several optimizers, and returns the operations, if there are any.

    Tables in other processes share their requests. One op updates all tables of an optimizer in
    memory of one device.
    """
    groups: dict[Hashable, list[TableStep]] = {}
    remote, operations = [], []
    for step in steps:
        table = step.table
        if table.is_remote:
            remote.append(step)
        elif table.is_one and table.tables[0].pools:
            kind = table.spec.devices[0], step.rule, id(step.owner), step.average
            groups.setdefault(kind, []).append(step)
        else:
            operations.append(step.run())
    for chosen in groups.values():
        operations += [chosen[0].run()] if len(chosen) == 1 else _run_at_once(chosen)
    if remote:
        for carrier, numbers in request_groups(step.table for step in remote):
            chosen = [remote[number] for number in numbers]
            operations += (
                [step.run() for step in chosen] if carrier is None else carrier.apply(chosen)
            )
    return operations


def run_owned(owned: Iterable[tuple[tf.IndexedSlices, TableOptimizer]]) -> None:
    """Does a step of each optimizer of one table. Tables in other processes share their requests.

    Args:
        owned: Pairs of a gradient without a loss scale, and the optimizer of its table.
    """
    begun: list[TableOptimizer] = []
    steps: list[TableStep] = []
    for gradient, own in owned:
        of_table = own.begin(gradient)
        if of_table is None:
            own.step_alone(gradient)
        else:
            begun.append(own)
            steps += of_table
    done = [each for each in run(steps) if each is not None]
    if len(done) > 1:
        done = [tf.group(*done)]  # a server then sends one signal, not one to each optimizer
    for own in begun:
        own.end(done)


def _run_at_once(steps: list[TableStep]) -> list[tf.Operation | None]:
    """Updates tables of one device and one optimizer by one op."""
    keys = [step.keys for step in steps]
    vectors = list({id(step.settings): step.settings for step in steps}.values())
    numbers = {id(vector): number for number, vector in enumerate(vectors)}
    first = steps[0]
    with tf.device(first.table.spec.devices[0]):
        done = library.de_tables_apply(
            [step.table.tables[0].resource_handle for step in steps],
            keys,
            [step.gradient.values for step in steps],
            vectors,
            first.owner,
            settings_of=[numbers[id(step.settings)] for step in steps],
            rule=first.rule,
            average=first.average,
        )
    heard = [
        step.table.updated(own, done)
        for own, step in zip(keys, steps, strict=True)
        if step.table.on_update is not None
    ]
    return [done, *heard]


def several_replicas() -> bool:
    """Returns whether the caller is one of several replicas that share this process's tables."""
    if not tf.distribute.has_strategy():
        return False
    context = tf.distribute.get_replica_context()
    if context is None or context.num_replicas_in_sync == 1:
        return False
    return not isinstance(context.strategy, tf.distribute.MultiWorkerMirroredStrategy)


def update_once(trained: Trained, update: Callable[[Trained], object]) -> None:
    """Joins the gradients of all replicas of a MirroredStrategy, and updates the tables once."""

    def merged(strategy: Any, slices: Any) -> None:
        parts = strategy.experimental_local_results
        joined = [
            tf.IndexedSlices(tf.concat(parts(values), 0), tf.concat(parts(ids), 0))
            for ids, values in slices
        ]
        update([(each, table) for each, (_, table) in zip(joined, trained, strict=True)])

    slices = [(gradient.indices, gradient.values) for gradient, _ in trained]
    tf.distribute.get_replica_context().merge_call(merged, args=(slices,))
