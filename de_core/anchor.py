"""The anchor: the empty variable that stands for a table wherever gradients are taken.

A table is no tensor, so a tape cannot differentiate with respect to it. Its anchor is a trainable
variable of shape [0, dim] that every lookup passes through; the gradient for it is the
`tf.IndexedSlices` of the ids. Optimizers must not treat it as a variable: the wrapped optimizer
recognises it (`table_of`), and any other is stopped at its first step.
"""

from __future__ import annotations

import functools
from typing import Any

import keras
import tensorflow as tf

from de_core.sharded_table import ShardedTable

_TABLE = "_de_table"


class Anchor(keras.Variable):
    """The anchor as Keras sees it: a weight of the layer that holds the table.

    Args:
        table: What it stands for.
    """

    def __init__(self, table: ShardedTable) -> None:
        super().__init__(
            initializer=lambda shape, dtype: tf.zeros(shape, dtype),
            shape=(0, table.spec.dim),
            dtype=table.spec.value_dtype.name,
            trainable=True,
            autocast=False,
            name="anchor",
        )
        self._de_table = table
        # Keras then hands the gradient to `assign` before it updates anything.
        self.overwrite_with_gradient = True

    def assign(self, value: Any) -> Any:
        """Refuses to be updated; accepts the empty value that `set_weights` brings back.

        Raises:
            RuntimeError: `value` is a gradient.
        """
        _refuse(value, self._de_table.name)
        return self.value

    def tensor_variable(self) -> tf.Variable | None:
        """Returns the `tf.Variable` behind it, or None while Keras only infers shapes."""
        variable = self.value
        if not isinstance(variable, tf.Variable):
            return None
        if table_of(variable) is None:
            # A Keras optimizer treats a bare tf.Variable by the same attribute and method.
            variable._de_table = self._de_table
            variable.overwrite_with_gradient = True
            variable.assign = functools.partial(_refuse, table_name=self._de_table.name)
        return variable


def table_of(variable: Any) -> ShardedTable | None:
    """Returns the table that a variable is the anchor of, or None if it is an ordinary one.

    Args:
        variable: A `keras.Variable` or `tf.Variable` out of a list of trainable variables.
    """
    return getattr(variable, _TABLE, None)


def _refuse(value: Any, table_name: str, **_: Any) -> None:
    if isinstance(value, tf.IndexedSlices) or 0 not in tuple(value.shape):
        raise RuntimeError(
            "The optimizer of a model with a dynamic table must be wrapped, or the table would not "
            "train: use de.DynamicEmbeddingOptimizer(optimizer). Received: a gradient for the "
            f"table {table_name!r} in an optimizer that was not wrapped."
        )
