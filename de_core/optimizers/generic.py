"""Any Keras optimizer on the rows of a table: gathered, updated by its own code, written back.

For optimizers that the engine has no rule for. Correct for every `update_step`, but each step reads
and writes rows and slots through tensors.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from de_core._ops import library
from de_core.config import received
from de_core.optimizers.accumulation import Trained
from de_core.optimizers.clipping import summed
from de_core.optimizers.plan import Plan, arithmetic_dtype
from de_core.sharded_table import ShardedTable


class RowUpdates:
    """Runs the `update_step` of a Keras optimizer over gathered rows.

    Args:
        optimizer: Whose settings hold, and whose learning rate and count of steps.
        adds: Whether rows are changed by differences, so that what others wrote meanwhile stays.
    """

    def __init__(self, optimizer: Any, adds: bool) -> None:
        warnings.warn(
            f"{type(optimizer).__name__} has no rule inside the tables: their rows are gathered, "
            "updated and written back, which is several times slower than the optimizers that have "
            "one, such as Adam.",
            stacklevel=4,
        )
        self._optimizer = optimizer
        self._adds = adds
        self._twins: dict[int, Any] = {}

    def apply(
        self,
        plan: Plan,
        trained: Trained,
        owner: tf.Tensor,
        is_decayed: Callable[[ShardedTable], bool],
    ) -> list[Any]:
        """Updates tables and returns the operations, if there are any.

        Args:
            plan: Its decay and average hold.
            trained: Gradients and tables.
            owner: Scalar string; under which the slots are kept.
            is_decayed: Whether the decay holds for a table.
        """
        return [
            self._update(
                plan if is_decayed(table) else plan._replace(decay=None),
                summed(gradient),
                table,
                owner,
            )
            for gradient, table in trained
        ]

    def _update(
        self, plan: Plan, gradient: tf.IndexedSlices, table: ShardedTable, owner: tf.Tensor
    ) -> Any:
        twin = self.twin(table)
        dtype = arithmetic_dtype(table)
        slots = [*twin.row_slots]
        if plan.average_momentum is not None:
            slots.append(twin.average)
        ids = gradient.indices
        if ids.dtype != table.spec.key_dtype:
            ids = tf.cast(ids, table.spec.key_dtype)
        values = gradient.values
        if table.policy.asks_each_step:
            has_row = table.begin_step(ids)
            ids, values = tf.boolean_mask(ids, has_row), tf.boolean_mask(values, has_row)
        if slots:
            made = table.ensure_slots(owner, {each.name: each.spec for each in slots})
            with tf.control_dependencies([] if made is None else [made]):
                ids = tf.identity(ids)
        old = table.find(ids)[0]
        before = tf.cast(old, dtype)
        twin.rows.assign(before)
        for slot in slots:
            slot.load(table.find_slot(ids, slot.full_name(owner), slot.width))
        rate = tf.cast(self._optimizer.learning_rate, dtype)
        if plan.decay is not None:
            twin.rows.assign_sub(twin.rows * tf.cast(plan.decay, dtype) * rate)
        twin.update_step(tf.cast(values, dtype), twin.rows, rate)
        after = twin.rows.read_value()
        if plan.average_momentum is not None:
            twin.average.blend(before, after, tf.cast(plan.average_momentum, dtype))
        new = tf.cast(after, table.spec.value_dtype)
        if self._adds:
            done = table.write(library.de_table_accum, (ids, old, new))
        else:
            done = table.write(library.de_table_insert_or_assign, (ids, new))
        with tf.control_dependencies([] if done is None else [done]):
            written = [table.assign_slot(ids, slot.rows(), slot.full_name(owner)) for slot in slots]
        return table.updated(ids, None if done is None else tf.group(done, *written))

    def twin(self, table: ShardedTable) -> Any:
        """Returns the copy of the optimizer that updates the rows of one table."""
        if id(table) not in self._twins:
            with tf.init_scope():
                self._twins[id(table)] = _twin_of(self._optimizer, table)
        return self._twins[id(table)]

    @property
    def variables(self) -> list[Any]:
        """State of the copies that belongs to no row."""
        return [each for twin in self._twins.values() for each in twin.shared_variables]


class RowSlot:
    """One slot of gathered rows: a variable as high as there are rows.

    Args:
        name: In the table.
        shape: Of the slot of one row.
        initial: What it begins as.
        dtype: Of its numbers.
    """

    def __init__(self, name: str, shape: tuple[int, ...], initial: float, dtype: tf.DType) -> None:
        self.name = name
        self.shape = shape
        self.initial = initial
        self.width = 1
        for size in shape:
            self.width *= size
        self.variable = tf.Variable(
            tf.zeros([0, *shape], dtype), shape=[None, *shape], trainable=False, name=name
        )

    def full_name(self, owner: tf.Tensor) -> tf.Tensor:
        """Returns the name by which the table knows it, a scalar string tensor."""
        return tf.strings.join([owner, "/", self.name])

    def load(self, rows: tf.Tensor) -> None:
        """Sets it to slots [n, width]."""
        self.variable.assign(tf.reshape(rows, [-1, *self.shape]))

    @property
    def spec(self) -> tuple[int, float]:
        """Its width, and what it begins as."""
        return self.width, self.initial

    def blend(self, before: tf.Tensor, after: tf.Tensor, momentum: tf.Tensor) -> None:
        """Moves an average on; one that has not begun begins at the rows before the step.

        Args:
            before: The rows, [n, dim].
            after: The same after the step.
            momentum: How much of the average is kept.
        """
        old = tf.where(tf.math.is_nan(self.variable), before, self.variable)
        self.variable.assign(momentum * old + (1 - momentum) * after)

    def rows(self) -> tf.Tensor:
        """Returns the slots, [n, width]."""
        return tf.reshape(self.variable.read_value(), [-1, self.width])


def _twin_of(optimizer: Any, table: ShardedTable) -> Any:
    """Returns a copy of an optimizer, built for a variable as high as there are gathered rows."""
    kind = type(optimizer)
    twin_class: Any = type(f"RowsOf{kind.__name__}", (_OverRows, kind), {})
    config = {**optimizer.get_config(), "use_ema": False, "gradient_accumulation_steps": None}
    twin = twin_class.from_config(config)
    twin.start(optimizer, table)
    return twin


class _OverRows:
    """What makes a copy of an optimizer work on rows: mixed in before the optimizer's class."""

    def start(self, original: Any, table: ShardedTable) -> None:
        """Makes the slots.

        Args:
            original: Which counts the steps.
            table: Whose rows are updated.
        """
        dtype = arithmetic_dtype(table)
        self.original = original
        self.row_slots: list[RowSlot] = []
        self.shared_variables: list[Any] = []
        self.rows = tf.Variable(
            tf.zeros([0, table.spec.dim], dtype),
            shape=[None, table.spec.dim],
            trainable=False,
            name="rows",
        )
        self.average = RowSlot("average", (table.spec.dim,), float("nan"), dtype)
        self.build([self.rows])  # type: ignore[attr-defined]

    def __setattr__(self, name: str, value: Any) -> None:
        # Not tracked: what lasts of it is in the table.
        object.__setattr__(self, name, value)

    @property
    def iterations(self) -> Any:
        """Steps done, by the original."""
        original = self.__dict__.get("original")
        return self.__dict__["_iterations"] if original is None else original.iterations

    def add_variable_from_reference(
        self, reference_variable: Any, name: str = "slot", initializer: Any = "zeros"
    ) -> Any:
        """Makes a slot of the shape of a variable."""
        shape = tuple(reference_variable.shape)
        return self.add_variable(shape, initializer, reference_variable.dtype, name=name)

    def add_variable(
        self,
        shape: Any,
        initializer: Any = "zeros",
        dtype: Any = None,
        aggregation: str = "none",
        layout: Any = None,
        name: str | None = None,
    ) -> Any:
        """Makes a slot in each row, or, of a shape without the rows, one for all of them."""
        shape = tuple(shape)
        if not shape or shape[0] is not None:
            variable = super().add_variable(  # type: ignore[misc]
                shape, initializer, dtype, aggregation=aggregation, layout=layout, name=name
            )
            self.shared_variables.append(variable)
            return variable
        dtype = tf.as_dtype(dtype or tf.float32)
        value = keras.initializers.get(initializer)((1, *shape[1:]), dtype=dtype.name)
        first = float(tf.reshape(value, [-1])[0])
        if not bool(tf.reduce_all(tf.equal(value, tf.cast(first, dtype)))):
            raise ValueError(
                "A slot of rows must begin as one number everywhere. "
                + received(initializer=initializer)
            )
        taken = sum(slot.name.startswith(name or "slot") for slot in self.row_slots)
        slot_name = f"{name or 'slot'}_{taken}" if taken else name or "slot"
        slot = RowSlot(slot_name.replace("/", "_"), shape[1:], first, dtype)
        self.row_slots.append(slot)
        return slot.variable
