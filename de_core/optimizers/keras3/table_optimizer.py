"""The optimizer of one table, for tables that do not share the optimizer of their model."""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import Any

import keras
import tensorflow as tf

from de_core.base import call_stack
from de_core.base.checks import received
from de_core.base.no_autograph import no_autograph
from de_core.base.types import Gradient
from de_core.optimizers import clipping, targets
from de_core.optimizers.keras3.optimizer import KerasOptimizer, check_not_scaled_by_keras
from de_core.optimizers.replicas import several_replicas
from de_core.optimizers.steps import run_owned
from de_core.tables.sharded import ShardedTable, TableStep
from de_core.variable.own_optimizer import OptimizerLike


class TableOptimizer(KerasOptimizer):
    """A Keras optimizer that trains one table; `de.Variable(optimizer=...)` makes it.

    Its learning rate, clipping, weight decay and count of steps hold for this table alone. A step
    of it is a step of any optimizer that trains the table's anchor: that optimizer hands it the
    gradient. The other settings of that optimizer do not reach the table.

    Args:
        optimizer: The user's optimizer, not built yet.
        table: The table.

    Raises:
        ValueError: `optimizer` is built, or one of its settings needs the whole model.
    """

    def __init__(self, optimizer: keras.optimizers.Optimizer, table: ShardedTable) -> None:
        if optimizer.built:
            raise ValueError(
                "An optimizer of one table must be new, because it counts the steps of this table "
                "alone. Make one optimizer per table, or pass its name or its configuration. "
                + received(optimizer=optimizer, built=True)
            )
        if optimizer.loss_scale_factor is not None:
            raise ValueError(
                "An optimizer of one table must have no `loss_scale_factor`, because the optimizer "
                "of the model scales the loss. Set it there. "
                + received(loss_scale_factor=optimizer.loss_scale_factor)
            )
        if optimizer.use_ema and not optimizer.ema_overwrite_frequency:
            raise ValueError(
                "An optimizer of one table with `use_ema` must have an `ema_overwrite_frequency`, "
                "because Keras does not tell it when training ends. Set it, or make the table "
                "without `optimizer` and use de.DynamicEmbeddingOptimizer(optimizer). "
                + received(ema_overwrite_frequency=None)
            )
        super().__init__(optimizer)
        self._caller: weakref.ref[Any] | None = None
        self._add_table(table)
        self.build([])  # Naming the anchor would be a reference cycle, which keeps the table.
        own = weakref.ref(self)  # for the same reason
        table.beside_slots = lambda: {} if (optimizer := own()) is None else optimizer._saved()

    @classmethod
    def of(cls, optimizer: OptimizerLike, table: ShardedTable) -> TableOptimizer:
        """Makes the optimizer of a table from the user's argument."""
        if isinstance(optimizer, (str, dict)):
            optimizer = keras.optimizers.get(optimizer)
        several = getattr(keras.optimizers, "MultiOptimizer", ())
        refused = (keras.optimizers.LossScaleOptimizer, KerasOptimizer, several)
        if not isinstance(optimizer, keras.optimizers.Optimizer) or isinstance(optimizer, refused):
            raise TypeError(
                "`optimizer` of a table must be an optimizer of Keras 3 that is not wrapped, its "
                f"name or its configuration. {received(optimizer=optimizer)} Pass, for example, "
                "keras.optimizers.Adagrad(0.02). For other optimizers, leave out `optimizer` and "
                "use de.DynamicEmbeddingOptimizer(optimizer)."
            )
        return cls(optimizer, table)

    def is_like(self, optimizer: OptimizerLike) -> bool:
        """Returns whether a user's argument has the same class and settings as this optimizer.

        Names and learning rates may differ, because a rate changes while a model trains.
        """
        if isinstance(optimizer, (str, dict)):
            optimizer = keras.optimizers.get(optimizer)
        inner = vars(self)["inner_optimizer"]
        if optimizer is inner:
            return True
        return type(optimizer) is type(inner) and _settings(optimizer) == _settings(inner)

    @property
    def slots_owner(self) -> tf.Tensor:
        """The name of the slots in the table. No other optimizer of the table has this name."""
        kind = type(vars(self)["inner_optimizer"])
        return tf.constant(f"own_{kind.__name__.lower()}")

    def _saved(self) -> dict[str, Any]:
        """Returns the variables that snapshot files with slots hold, by name.

        The names begin with the class, because they belong to the slots of this class.
        """
        inner, [table] = vars(self)["inner_optimizer"], self._tables
        found = {"iterations": inner.iterations, "u_product": self.u_product}
        if isinstance(inner.learning_rate, keras.Variable):  # not by a schedule
            found["learning_rate"] = inner.learning_rate
        if self._copies is not None:
            shared = self._copies.shared_variables(table)
            found |= {f"shared_{number}": each for number, each in enumerate(shared)}
        return {f"{type(inner).__name__}/{name}": each for name, each in found.items()}

    def _running_optimizer(self) -> Any:
        """Returns the other optimizer that is running a step, or None. Keras does not pass it."""
        return call_stack.nearest_owner(keras.optimizers.Optimizer, lambda each: each is not self)

    def check_caller(self) -> None:
        """Raises if the optimizer that is about to hand over the gradient would spoil it."""
        optimizer = self._running_optimizer()
        if optimizer is None or (self._caller is not None and self._caller() is optimizer):
            return
        check_not_scaled_by_keras()
        steps = getattr(optimizer, "gradient_accumulation_steps", None)
        if steps:
            raise NotImplementedError(
                "An optimizer that accumulates gradients must be wrapped, because Keras cannot add "
                "up the sparse gradients of tables. Make the tables without `optimizer`, and use "
                "de.DynamicEmbeddingOptimizer(optimizer). "
                + received(gradient_accumulation_steps=steps)
            )
        self._caller = weakref.ref(optimizer)

    def take(self, gradient: Gradient) -> None:
        """Does one step by a gradient that a Keras optimizer hands to the anchor.

        The gradient is scaled by that optimizer's `loss_scale_factor`.
        """
        [table] = self._tables
        if not isinstance(gradient, tf.IndexedSlices):
            targets.check_nothing(gradient, table)
            return
        gradient = targets.checked(gradient, table)
        factor = getattr(self._running_optimizer(), "loss_scale_factor", None)
        if factor is not None:
            gradient = clipping.scaled(gradient, 1.0 / factor)
        self.step(gradient)

    @no_autograph
    def apply(self, grads: Iterable[Any], trainable_variables: Iterable[Any] | None = None) -> None:
        """Does one step by the gradient of the table.

        Raises:
            ValueError: A variable is not the table, or the table has no gradient.
        """
        variables = list(trainable_variables or ())
        given = targets.Targets.of(grads, variables)
        if given.trained or given.dense or [own for _, own in given.owned] != [self]:
            raise ValueError(
                "An optimizer of one table must be given one gradient, of this table. Received: "
                f"gradients for {[each.name for each in variables]}, table="
                f"{self._tables[0].name!r}. Train several variables by the optimizer of the model."
            )
        run_owned(given.owned)

    @no_autograph
    def step(self, gradient: tf.IndexedSlices) -> None:
        """Does one step."""
        run_owned([(gradient, self)])

    def begin(self, gradient: tf.IndexedSlices) -> list[TableStep] | None:
        """Begins a step. Returns what to do in the table; None if it has done the whole step."""
        inner, [table] = vars(self)["inner_optimizer"], self._tables
        if self._generic is not None or self._accumulation is not None or several_replicas():
            self._step(targets.Targets([(gradient, table)], [], []))
            return None
        self._admit([(gradient, table)])
        trained, _ = clipping.clip_tables(inner, [(gradient, table)], [])
        return self._steps_of(trained)

    def end(self, done: list[tf.Operation]) -> None:
        """Ends a step after the operations `done`: updates averages and the count of steps."""
        self._overwrite(done)
        with tf.control_dependencies(done):
            self._apply_to_others(vars(self)["inner_optimizer"], [])


def _settings(optimizer: Any) -> dict[str, Any]:
    config: dict[str, Any] = optimizer.get_config()
    return {name: each for name, each in config.items() if name not in ("name", "learning_rate")}
