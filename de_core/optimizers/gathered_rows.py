"""Presents gathered rows of a table to an optimizer as ordinary variables."""

from __future__ import annotations

import math

import tensorflow as tf

from de_core.base.checks import received
from de_core.base.types import DTypeLike, ShapeLike, TensorLike
from de_core.tables.sharded import ShardedTable
from de_core.tables.spec import arithmetic_dtype


class RowSlot:
    """One slot of the gathered rows: a variable with one entry per row.

    Args:
        name: The slot's name in the table.
        shape: The shape of the slot of one row.
        initial: The initial value of each number.
        dtype: The dtype of the numbers.
    """

    def __init__(self, name: str, shape: tuple[int, ...], initial: float, dtype: tf.DType) -> None:
        self.name = name
        self.shape = shape
        self.initial = initial
        self.width = math.prod(shape)
        self.variable = _of_any_height(shape, dtype, name)

    def full_name(self, owner: tf.Tensor) -> tf.Tensor:
        """Returns the slot's full name in the table, "owner/name", a scalar string tensor."""
        return tf.strings.join([owner, "/", self.name])

    def load(self, rows: tf.Tensor) -> None:
        """Sets the variable to the slots of n rows, [n, width]."""
        self.variable.assign(tf.reshape(rows, [-1, *self.shape]))

    @property
    def spec(self) -> tuple[int, float]:
        """The slot's width, and its initial value."""
        return self.width, self.initial

    def blend(self, before: tf.Tensor, after: tf.Tensor, momentum: tf.Tensor) -> None:
        """Updates a moving average. A new row's average starts at the row before this step.

        Args:
            before: The rows before the step, [n, dim].
            after: The rows after the step, [n, dim].
            momentum: The fraction of the old average that stays.
        """
        old = tf.where(tf.math.is_nan(self.variable), before, self.variable)
        self.variable.assign(momentum * old + (1 - momentum) * after)

    def rows(self) -> tf.Tensor:
        """Returns the slots, [n, width]."""
        return tf.reshape(self.variable.read_value(), [-1, self.width])


class GatheredRows:
    """Some rows of one table, and their slots.

    Args:
        table: The table. Each step gathers other rows.

    Attributes:
        rows: The variable with the rows, [n, dim].
        slots: The slots, in the order in which the optimizer made them.
        average: The rows' moving average. Only optimizers with moving averages use it.
    """

    def __init__(self, table: ShardedTable) -> None:
        self.dtype = arithmetic_dtype(table.spec.value_dtype)
        self.dim = table.spec.dim
        self.rows = _of_any_height((self.dim,), self.dtype, "rows")
        self.slots: list[RowSlot] = []
        self.average = RowSlot("average", (self.dim,), float("nan"), self.dtype)

    def template(self) -> tf.Variable:
        """Returns a variable [dim + 1, dim] for optimizers that make slots of a fixed shape.

        A slot whose first dimension is dim + 1 has one entry per row. No other shape that an
        optimizer derives from `dim` has this first dimension.
        """
        zeros = tf.zeros([self.dim + 1, self.dim], self.dtype)
        return _variable(zeros, zeros.shape, "template")

    def is_of_rows(self, shape: ShapeLike) -> bool:
        """Returns whether a slot made for the template has one entry per row."""
        return len(shape) > 0 and shape[0] == self.dim + 1

    def add(self, name: str, value: TensorLike, dtype: DTypeLike | None = None) -> tf.Variable:
        """Makes a slot and returns its variable.

        Args:
            name: The slot's name. A number is appended if another slot has this name.
            value: The initial slots of one or more rows.
            dtype: The dtype of the slot; None for the dtype of `value`.

        Raises:
            ValueError: `value` is not a constant, or its numbers differ.
        """
        value = tf.convert_to_tensor(value)
        values = tf.get_static_value(value)
        if values is None or (values != values.flat[0]).any():
            raise ValueError(
                "A slot of rows must begin as one number everywhere, independent of the values of "
                f"variables. {received(slot=name, initial_value=value)}"
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


def _variable(value: tf.Tensor, shape: ShapeLike, name: str) -> tf.Variable:
    # Add the variable to no graph collection: Savers need not save it, because each step assigns it
    # before reading it.
    return tf.compat.v1.Variable(
        value,
        trainable=False,
        collections=[],
        validate_shape=False,
        use_resource=True,
        shape=tf.TensorShape(shape),
        name=name,
    )
