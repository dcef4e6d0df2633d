"""The TensorFlow 1 optimizer for models with dynamic tables."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import tensorflow as tf

from de_core.optimizers import plan, tf1_rules
from de_core.optimizers.targets import Targets
from de_core.plain_python import plain_python
from de_core.sharded_table import ShardedTable


class Tf1Optimizer(tf.compat.v1.train.Optimizer):
    """A `tf.compat.v1.train.Optimizer` that also trains dynamic tables.

    `DynamicEmbeddingOptimizer` makes it. `compute_gradients`, `apply_gradients` and `minimize` work
    as those of the wrapped optimizer, which gets the gradients of ordinary variables.

    Args:
        optimizer: The optimizer to wrap.
        bp_v2: See `DynamicEmbeddingOptimizer`.
        reject_nonfinite: See `DynamicEmbeddingOptimizer`.
        name: Of the optimizer; the slots in the tables go by it.

    Raises:
        NotImplementedError: It has no rule inside the tables.
    """

    def __init__(
        self,
        optimizer: Any,
        bp_v2: bool = False,
        reject_nonfinite: bool = False,
        name: str | None = None,
    ) -> None:
        super().__init__(use_locking=False, name=name or optimizer.get_name())
        self.inner_optimizer = optimizer
        self.bp_v2 = bool(bp_v2)
        self.reject_nonfinite = bool(reject_nonfinite)
        self._rule = tf1_rules.rule_of(optimizer)
        self._tables: list[ShardedTable] = []
        self._count: tf.Variable | None = None
        scope = self.get_name().replace("/", "_")
        # Of a second optimizer of the same name in a graph the slots are others.
        self._owner = scope if tf.executing_eagerly() else _unique_in_graph(scope)

    @plain_python
    def apply_gradients(
        self,
        grads_and_vars: Iterable[tuple[Any, Any]],
        global_step: Any = None,
        name: str | None = None,
    ) -> Any:
        """Does one step.

        Args:
            grads_and_vars: Pairs of a gradient, or None, and its variable.
            global_step: A variable to increment after the step, or None.
            name: Of the operation.

        Returns:
            The operation; None in eager mode.

        Raises:
            TypeError: A table's values are no floating-point numbers.
            ValueError: There is no gradient at all.
        """
        targets = Targets.of_pairs(grads_and_vars)
        for _, table in targets.trained:
            if table not in self._tables:
                self._tables.append(table)
        dense = targets.others
        checks = targets.require_finite() if self.reject_nonfinite else []
        with tf.control_dependencies(checks):
            done = self._apply_to_tables(targets) if targets.trained else []
        # A table that refuses its gradient stops the step before the rest.
        with tf.control_dependencies(done):
            if dense:
                return self.inner_optimizer.apply_gradients(dense, global_step, name)
            if global_step is not None:
                counted = tf.compat.v1.assign_add(global_step, tf.ones_like(global_step))
                done = [*done, counted.op] if not tf.executing_eagerly() else done
        return None if tf.executing_eagerly() else tf.group(*done, name=name)

    def _apply_to_tables(self, targets: Targets) -> list[Any]:
        count = self._steps()
        with tf.control_dependencies([count]):
            step = tf.cast(count, tf.int64)
        native = plan.Plan(
            self._rule.name(self.inner_optimizer),
            lambda dtype: self._rule.settings(self.inner_optimizer, step, dtype),
        )
        done = plan.apply(native, targets.trained, tf.constant(self._owner))
        return [each for each in done if each is not None]

    def _steps(self) -> Any:
        """Returns the number of this step, counted from 1, having counted it."""
        if not self._rule.counts:
            return tf.constant(0, tf.int64)
        if self._count is None:
            with tf.init_scope() if tf.executing_eagerly() else tf.name_scope(""):
                self._count = tf.compat.v1.get_variable(
                    f"{self._owner}/de_steps",
                    shape=[],
                    dtype=tf.int64,
                    initializer=tf.compat.v1.zeros_initializer(),
                    trainable=False,
                    use_resource=True,
                )
        return self._count.assign_add(1, read_value=True)

    def get_slot(self, var: Any, name: str) -> Any:
        """Returns the wrapped optimizer's slot of an ordinary variable, or None."""
        return self.inner_optimizer.get_slot(var, name)

    def get_slot_names(self) -> list[str]:
        """Returns the names of the wrapped optimizer's slots of ordinary variables."""
        return list(self.inner_optimizer.get_slot_names())

    def variables(self) -> list[Any]:
        """Returns the state that is no row's: the wrapped optimizer's and the count of steps."""
        own = [] if self._count is None else [self._count]
        return [*own, *self.inner_optimizer.variables()]

    @property
    def tables(self) -> list[ShardedTable]:
        """The tables that it trained."""
        return list(self._tables)

    @property
    def slots_owner(self) -> tf.Tensor:
        """The name under which the tables keep this optimizer's slots, a scalar string tensor."""
        return tf.constant(self._owner)

    def slots_in(self, table: ShardedTable) -> dict[str, int]:
        """Returns the width of each slot of a table by its name, as the rule makes them."""
        return dict.fromkeys(self._rule.slots(self.inner_optimizer), table.spec.dim)


def _unique_in_graph(name: str) -> str:
    with tf.compat.v1.name_scope(None):  # the scope at hand would prefix it
        unique: str = tf.compat.v1.get_default_graph().unique_name(f"de_slots_{name}")
    return unique.removeprefix("de_slots_")
