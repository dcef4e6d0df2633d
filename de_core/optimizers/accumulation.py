"""Gradient accumulation: gradients wait until the step that applies their mean."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import tensorflow as tf

from de_core.base.types import GradientPair, TrainedVariable
from de_core.optimizers import clipping
from de_core.optimizers.clipping import Trained
from de_core.optimizers.targets import Targets
from de_core.tables.sharded import ShardedTable
from de_core.tables.spec import arithmetic_dtype


class WaitingGradients(tf.Module):
    """Keeps the slices of one table's gradients in two growing variables until a step uses them."""

    def __init__(self, table: ShardedTable) -> None:
        super().__init__(name="waiting_gradients")
        self._table = table
        with tf.init_scope():
            none = no_slices(table)
            self.ids = tf.Variable(none.indices, shape=[None], trainable=False)
            self.values = tf.Variable(none.values, shape=[None, table.spec.dim], trainable=False)

    def joined(self, gradient: tf.IndexedSlices | None) -> tf.IndexedSlices:
        """Returns the waiting slices, followed by the slices of `gradient` if given."""
        gradient = gradient or no_slices(self._table)
        ids, values = gradient.indices, gradient.values
        ids = ids if ids.dtype == self.ids.dtype else tf.cast(ids, self.ids.dtype)
        values = tf.concat([self.values.read_value(), values], 0)
        ids = tf.concat([self.ids.read_value(), ids], 0)
        return tf.IndexedSlices(values, ids, gradient.dense_shape)

    def keep(self, gradient: tf.IndexedSlices) -> None:
        """Replaces the waiting slices by the slices of `gradient`."""
        self.ids.assign(gradient.indices)
        self.values.assign(gradient.values)


class Accumulation(tf.Module):
    """Accumulates gradients of tables, and if needed of ordinary variables, between two updates.

    A wrapped optimizer sums the gradients of ordinary variables itself, but its sums are not
    public. Clipping by global norm needs them, so this class then keeps a second copy.
    """

    def __init__(self, tables: Iterable[ShardedTable], mirrored: Iterable[TrainedVariable]) -> None:
        super().__init__(name="accumulation")
        self._tables = list(tables)
        self.waiting = [WaitingGradients(table) for table in self._tables]
        with tf.init_scope():
            self.sums = {
                _key(each): tf.Variable(tf.zeros(each.shape, each.dtype), trainable=False)
                for each in mirrored
            }

    def step(
        self,
        targets: Targets,
        due: tf.Tensor,
        steps: int,
        update: Callable[[Trained, list[tf.Tensor]], tuple[Any, tf.Tensor | None]],
    ) -> tuple[list[tf.Tensor], list[GradientPair]]:
        """Keeps this step's gradients, or updates the tables by the mean of all kept gradients.

        Args:
            targets: The gradients of this step.
            due: A bool scalar, true if this step updates the tables.
            steps: The number of steps whose gradients are accumulated.
            update: Called with the mean gradients of the tables and of the mirrored variables.
                Updates the tables. Returns the operations, and the factor that clips the mirrored
                variables' gradients, or None.

        Returns:
            Tensors that the rest of the step must depend on, and pairs of a gradient and its
            ordinary variable for the wrapped optimizer.
        """
        given = {id(table): gradient for gradient, table in targets.trained}
        joined = [
            waiting.joined(given.get(id(table)))
            for waiting, table in zip(self.waiting, self._tables, strict=True)
        ]
        dense = targets.others
        sums = [self.sums[_key(variable)] for _, variable in dense] if self.sums else []
        before = [each.read_value() for each in sums]
        totals = [
            tf.cast(tf.convert_to_tensor(each), old.dtype) + old
            for (each, _), old in zip(dense, before, strict=False)
        ]

        one = tf.constant(1.0, tf.float64)

        def take() -> tf.Tensor:
            means = [clipping.scaled(each, 1.0 / steps) for each in joined]
            trained = list(zip(means, self._tables, strict=True))
            _, scale = update(trained, [each / steps for each in totals])
            for waiting, table in zip(self.waiting, self._tables, strict=True):
                waiting.keep(no_slices(table))
            for each in sums:
                each.assign(tf.zeros_like(each))
            return one if scale is None else tf.cast(scale, one.dtype)

        def wait() -> tf.Tensor:
            for waiting, gradient in zip(self.waiting, joined, strict=True):
                waiting.keep(gradient)
            for each, total in zip(sums, totals, strict=True):
                each.assign(total)
            return one

        scale = tf.cond(due, take, wait)
        if sums:
            # The wrapped optimizer adds this gradient to its own sum, `old`, and divides by
            # `steps`. With this gradient, its result is the clipped mean.
            dense = [
                (tf.where(due, tf.cast(scale, total.dtype) * total - old, each), variable)
                for (each, variable), total, old in zip(dense, totals, before, strict=True)
            ]
        return ([] if tf.executing_eagerly() else [scale]), dense

    def _state(self) -> list[tf.Variable]:
        waiting = [part for each in self.waiting for part in (each.ids, each.values)]
        return [*waiting, *self.sums.values()]

    def save(self, store: Any) -> None:
        """Writes the waiting gradients into a Keras file, under names that begin "waiting_"."""
        for number, variable in enumerate(self._state()):
            saved = tf.io.serialize_tensor(variable).numpy()
            store[f"waiting_{number}"] = np.frombuffer(saved, np.uint8)

    def load(self, store: Any) -> None:
        """Reads the waiting gradients that `save` wrote."""
        for number, variable in enumerate(self._state()):
            saved = np.asarray(store[f"waiting_{number}"]).tobytes()
            variable.assign(tf.io.parse_tensor(saved, variable.dtype))


def no_slices(table: ShardedTable) -> tf.IndexedSlices:
    """Returns a gradient of a table without slices."""
    spec = table.spec
    values = tf.zeros([0, spec.dim], arithmetic_dtype(spec.value_dtype))
    return tf.IndexedSlices(values, tf.zeros([0], spec.key_dtype), tf.constant([-1, spec.dim]))


def _key(variable: TrainedVariable) -> int:
    # Keras passes either its own variable or the TensorFlow variable inside it.
    value = getattr(variable, "value", variable)
    return id(variable if callable(value) else value)
