"""Adagrad with one accumulator per row: nearly as good as Adagrad with far less memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras

from de_core.optimizers.keras3.row_state import mean_square, row_state


@keras.saving.register_keras_serializable(package="de_core")
class RowwiseAdagrad(keras.optimizers.Optimizer):
    """Adagrad whose accumulator sums the mean square of each row's gradient.

    FBGEMM's table-batched embeddings have the same rule. With g the gradient of a row:
    `accumulator += mean(g ** 2)`, then
    `row -= learning_rate * g / (sqrt(accumulator) + epsilon)`. A dynamic table runs the rule
    inside the table and keeps one accumulator per row, a float32 or float64. In an ordinary
    variable, the last axis spans a row.

    Args:
        learning_rate: A float or a schedule.
        initial_accumulator_value: The initial value of each accumulator.
        epsilon: A small number that keeps the denominator above zero.
        **settings: The settings that every Keras optimizer takes, such as `clipnorm`.

    Raises:
        ValueError: Keras does not know a setting.

    Example:
    >>> import tensorflow as tf
    >>> import de_core as de
    >>> optimizer = de.DynamicEmbeddingOptimizer(RowwiseAdagrad(0.1))
    >>> users = de.Variable(dim=4, name="users")
    >>> optimizer.apply([tf.IndexedSlices(tf.ones([1, 4]), tf.constant([7], tf.int64))], [users])
    >>> [round(float(value), 3) for value in users.lookup([7])[0]]
    [-0.095, -0.095, -0.095, -0.095]
    """

    def __init__(
        self,
        learning_rate: Any = 0.01,
        initial_accumulator_value: float = 0.1,
        epsilon: float = 1e-7,
        **settings: Any,
    ) -> None:
        super().__init__(learning_rate=learning_rate, **settings)
        self.initial_accumulator_value = initial_accumulator_value
        self.epsilon = epsilon

    def build(self, variables: Sequence[Any]) -> None:
        """Makes the accumulators of ordinary variables.

        Args:
            variables: The variables to train.
        """
        if self.built:
            return
        super().build(variables)
        initial = self.initial_accumulator_value
        self._accumulators = [row_state(self, each, "accumulator", initial) for each in variables]

    def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        """Updates one ordinary variable.

        Args:
            gradient: The gradient, in the variable's shape.
            variable: The variable to update.
            learning_rate: The learning rate of this step.
        """
        ops = keras.ops
        rate = ops.cast(learning_rate, variable.dtype)
        gradient = ops.cast(gradient, variable.dtype)
        accumulator = self._accumulators[self._get_variable_index(variable)]
        self.assign_add(accumulator, mean_square(gradient))
        self.assign_sub(variable, rate * gradient / (ops.sqrt(accumulator) + self.epsilon))

    def get_config(self) -> dict[str, Any]:
        """Returns the configuration for `from_config`, which makes an equal optimizer."""
        return {
            **super().get_config(),
            "initial_accumulator_value": self.initial_accumulator_value,
            "epsilon": self.epsilon,
        }
