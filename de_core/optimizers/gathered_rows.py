"""Rows of a table that were gathered, as an optimizer sees them: variables of as many rows."""

from __future__ import annotations

import math
from typing import Any

import tensorflow as tf

from de_core.base.checks import received
from de_core.optimizers.plan import arithmetic_dtype
from de_core.tables.sharded import ShardedTable


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
        self.width = math.prod(shape)
        self.variable = _of_any_height(shape, dtype, name)

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


class GatheredRows:
    """Some rows of one table, and their slots.

    Args:
        table: Whose rows are gathered, anew in each step.

    Attributes:
        rows: Variable of the rows, [n, dim].
        slots: In the order in which an optimizer made them.
        average: The rows' moving average, for whoever keeps one.
    """

    def __init__(self, table: ShardedTable) -> None:
        self.dtype = arithmetic_dtype(table)
        self.dim = table.spec.dim
        self.rows = _of_any_height((self.dim,), self.dtype, "rows")
        self.slots: list[RowSlot] = []
        self.average = RowSlot("average", (self.dim,), float("nan"), self.dtype)

    def template(self) -> tf.Variable:
        """Returns a variable to make slots for where they need a height: [dim + 1, dim].

        A slot of that height has one part a row: no other shape that follows from `dim` is.
        """
        zeros = tf.zeros([self.dim + 1, self.dim], self.dtype)
        return _variable(zeros, zeros.shape, "template")

    def is_of_rows(self, shape: Any) -> bool:
        """Returns whether a slot that was made for the template has one part a row."""
        return len(shape) > 0 and shape[0] == self.dim + 1

    def add(self, name: str, value: Any, dtype: Any = None) -> tf.Variable:
        """Makes a slot and returns its variable.

        Args:
            name: Made unique.
            value: What the slots of some rows, at least one, begin as.
            dtype: Of its numbers; None for that of `value`.

        Raises:
            ValueError: It does not begin as one number everywhere.
        """
        value = tf.convert_to_tensor(value)
        values = tf.get_static_value(value)
        if values is None or (values != values.flat[0]).any():
            raise ValueError(
                "A slot of rows must begin as one number everywhere, and not depend on the values "
                f"of variables. {received(slot=name, initial_value=value)}"
            )
        taken = sum(slot.name.startswith(name) for slot in self.slots)
        unique = f"{name}_{taken}" if taken else name
        slot = RowSlot(
            unique.replace("/", "_"),
            tuple(value.shape[1:]),
            float(values.flat[0]),
            value.dtype if dtype is None else tf.as_dtype(dtype),
        )
        self.slots.append(slot)
        return slot.variable


def _of_any_height(shape: tuple[int, ...], dtype: tf.DType, name: str) -> tf.Variable:
    return _variable(tf.zeros([0, *shape], dtype), [None, *shape], name)


def _variable(value: tf.Tensor, shape: Any, name: str) -> tf.Variable:
    # In no collection of a graph: whatever is in it is assigned before it is read, in each step.
    return tf.compat.v1.Variable(
        value,
        trainable=False,
        collections=[],
        validate_shape=False,
        use_resource=True,
        shape=tf.TensorShape(shape),
        name=name,
    )
