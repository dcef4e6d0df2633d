"""A copy of a TensorFlow 1 optimizer that updates gathered rows of tables."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from de_core.optimizers.gathered_rows import ChangedCopy, Copies, GatheredRows, changed_copy
from de_core.tables.sharded import ShardedTable

_Optimizer = tf.compat.v1.train.Optimizer


class Tf1Copies(Copies):
    """One copy of an optimizer for all tables. Tables share the state that is not kept per row."""

    def __init__(self, optimizer: Any) -> None:
        super().__init__(optimizer)
        self._copy = changed_copy(optimizer, _OverRows, rows={}, places={}, state={})
        self._name = optimizer.get_name()

    def rows_of(self, table: ShardedTable) -> GatheredRows:
        """Returns the gathered rows and slots of one table. Creates them at the first call."""
        known: dict[int, GatheredRows] = self._copy.rows
        if id(table) not in known:
            with tf.init_scope(), tf.name_scope(f"{self._name}_rows/"):
                known[id(table)] = gathered = GatheredRows(table)
                template = gathered.template()
                for variable in (template, gathered.rows):
                    self._copy.places[id(variable)] = gathered
                self._copy.templates = [*getattr(self._copy, "templates", []), template]
                self._copy._create_slots([template])
        return known[id(table)]

    def begin(self) -> None:
        """Runs the optimizer's `_prepare`, which for example makes tensors of its settings."""
        self._copy._prepare()

    def update(self, table: ShardedTable, gradient: tf.Tensor) -> Any:
        """Changes the gathered rows and slots of a table by their gradient, [n, dim]."""
        copy, rows = self._copy, self.rows_of(table).rows
        if type(copy)._resource_apply_dense is _Optimizer._resource_apply_dense:
            return copy._apply_dense(gradient, rows)
        return copy._resource_apply_dense(gradient, rows)

    def end(self, done: list[Any]) -> Any:
        """Runs the optimizer's `_finish`, which for example counts steps, after all updates."""
        return self._copy._finish(done, f"{self._name}_finish")

    @property
    def variables(self) -> list[Any]:
        """The copy's variables that are not kept per row."""
        return list(self._copy.state.values())


class _OverRows(ChangedCopy):
    """A mixin that lets a copy of an optimizer make slots per row."""

    rows: dict[int, GatheredRows]
    places: dict[int, GatheredRows]
    state: dict[str, Any]
    templates: list[tf.Variable]  # referenced here, because `places` has their `id()`s as keys

    def get_slot(self, var: Any, name: str) -> Any:
        """Returns the slot of some rows, or None."""
        slots = self.places[id(var)].slots
        return next((slot.variable for slot in slots if slot.name == _cleaned(name)), None)

    def _get_or_make_slot(self, var: Any, val: Any, slot_name: str, op_name: str) -> Any:
        del op_name
        slot = self.get_slot(var, slot_name)
        return self.places[id(var)].add(_cleaned(slot_name), val) if slot is None else slot

    def _get_or_make_slot_with_initializer(
        self, var: Any, initializer: Any, shape: Any, dtype: Any, slot_name: str, op_name: str
    ) -> Any:
        try:
            value = initializer(shape, dtype=dtype)
        except TypeError:
            value = initializer()
        return self._get_or_make_slot(var, value, slot_name, op_name)

    def _zeros_slot(self, var: Any, slot_name: str, op_name: str) -> Any:
        zeros = tf.zeros(var.shape, var.dtype.base_dtype)
        return self._get_or_make_slot(var, zeros, slot_name, op_name)

    def _create_non_slot_variable(self, initial_value: Any, name: str, colocate_with: Any) -> Any:
        del colocate_with
        if name not in self.state:
            self.state[name] = tf.compat.v1.Variable(
                initial_value, name=name, trainable=False, use_resource=True
            )
        return self.state[name]

    def _get_non_slot_variable(self, name: str, graph: Any = None) -> Any:
        del graph
        return self.state.get(name)

    def _non_slot_variables(self) -> Any:
        return self.state.values()


def _cleaned(name: str) -> str:
    return name.replace("/", "_")
