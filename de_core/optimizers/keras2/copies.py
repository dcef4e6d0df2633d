"""Copies of tf_keras optimizers, new and legacy, that update gathered rows of tables."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
import tf_keras

from de_core.optimizers.gathered_rows import ChangedCopy, Copies, GatheredRows, changed_copy
from de_core.tables.sharded import ShardedTable


class Keras2Copies(Copies):
    """Copies of a tf_keras optimizer, new or legacy."""

    def __init__(self, optimizer: Any) -> None:
        super().__init__(optimizer)
        self._is_legacy = isinstance(optimizer, tf_keras.optimizers.legacy.Optimizer)
        # An attribute that is None now may be set to a variable at a legacy optimizer's first step.
        # The copies must not use that variable: each makes its own.
        self._unmade = [name for name, value in vars(optimizer).items() if value is None]

    def _new_copy(self, table: ShardedTable) -> Any:
        changed: dict[str, Any] = {"gathered": GatheredRows(table), "shared_variables": []}
        if not self._is_legacy:
            changed |= {"use_ema": False, "_built": False}
            copy: Any = changed_copy(self._optimizer, _OverRowsNew, **changed)
            copy.build([copy.gathered.template()])
            return copy
        changed |= {**dict.fromkeys(self._unmade), "slots_by_name": {}, "_weights": []}
        copy = changed_copy(self._optimizer, _OverRowsLegacy, **changed)
        self._optimizer._create_hypers()
        copy._create_slots([copy.gathered.template()])
        return copy

    def begin(self) -> None:
        """Computes the learning rate of this step. A legacy optimizer's update reads it itself."""
        if not self._is_legacy:
            self._optimizer._compute_current_learning_rate()

    def update(self, table: ShardedTable, gradient: tf.Tensor) -> Any:
        """Changes the gathered rows and slots of a table by their gradient, [n, dim]."""
        copy, rows = self._copy_for(table), self.rows_of(table).rows
        if not self._is_legacy:
            return copy.update_step(gradient, rows)
        state = {"apply_state": copy._prepare([rows])}
        takes_state = "apply_state" in copy._dense_apply_args
        return copy._resource_apply_dense(gradient, rows, **(state if takes_state else {}))

    def shared_variables(self, table: ShardedTable) -> list[Any]:
        """Returns the variables of a table's copy that are not kept per row."""
        copy = self._copy_for(table)
        direct = [each for each in vars(copy).values() if isinstance(each, tf.Variable)]
        known = {id(each): each for each in [*copy.shared_variables, *direct]}
        return list(known.values())


class _OverRows(ChangedCopy):
    """A mixin that lets a copy of a tf_keras optimizer make slots per row.

    A slot whose shape has no axis for rows becomes one variable for all rows.
    """

    gathered: GatheredRows
    shared_variables: list[Any]

    def made(self, name: str, value: tf.Tensor) -> tf.Variable:
        """Makes a slot, given its initial value."""
        if self.gathered.is_of_rows(value.shape):
            return self.gathered.add(name.partition("/")[0], value)
        variable = tf.Variable(value, trainable=False, name=name)
        self.shared_variables.append(variable)
        return variable


class _OverRowsNew(_OverRows):
    def _var_key(self, variable: Any) -> str:
        """Returns one key for every variable, so that the rows have the template's slots."""
        del variable
        return "rows"

    def add_variable_from_reference(
        self, model_variable: Any, variable_name: str, shape: Any = None, initial_value: Any = None
    ) -> Any:
        if initial_value is None:
            shape = model_variable.shape if shape is None else shape
            initial_value = tf.zeros(shape, model_variable.dtype)
        return self.made(variable_name, tf.convert_to_tensor(initial_value))

    def add_variable(
        self, shape: Any, dtype: Any = None, initializer: Any = "zeros", name: str | None = None
    ) -> Any:
        dtype = tf_keras.backend.floatx() if dtype is None else dtype
        value = tf_keras.initializers.get(initializer)([] if shape is None else shape, dtype)
        return self.made(name or "variable", value)


class _OverRowsLegacy(_OverRows):
    slots_by_name: dict[str, Any]

    @property
    def iterations(self) -> Any:
        return self.original.iterations

    def add_slot(
        self, var: Any, slot_name: str, initializer: Any = "zeros", shape: Any = None
    ) -> Any:
        if slot_name in self.slots_by_name:
            return self.slots_by_name[slot_name]
        if isinstance(initializer, str) or callable(initializer):
            shape = var.shape if shape is None else shape
            value = tf_keras.initializers.get(initializer)(shape, dtype=var.dtype)
        else:
            value = initializer
        self.slots_by_name[slot_name] = slot = self.made(slot_name, tf.convert_to_tensor(value))
        return slot

    def get_slot(self, var: Any, slot_name: str) -> Any:
        del var
        return self.slots_by_name[slot_name]

    def add_weight(
        self, name: str, shape: Any, dtype: Any = None, initializer: Any = "zeros", **_: Any
    ) -> Any:
        """Makes one variable for all rows."""
        dtype = tf.float32 if dtype is None else dtype
        return self.made(name, tf_keras.initializers.get(initializer)(shape, dtype))
