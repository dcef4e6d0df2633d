"""Adagrad and Adam with one accumulator per row: nearly as good, with far less memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras


class _Rowwise(keras.optimizers.Optimizer):
    """An optimizer with one number per row of an ordinary variable, whose last axis is a row."""

    #: The names of the settings that are the optimizer's own.
    _settings: tuple[str, ...]

    def build(self, variables: Sequence[Any]) -> None:
        if not self.built:
            super().build(variables)
            self._make_slots(variables)

    def _make_slots(self, variables: Sequence[Any]) -> None:
        raise NotImplementedError

    def _row_slot(self, variable: Any, name: str, value: float) -> Any:
        return self.add_variable(
            (*variable.shape[:-1], 1) if len(variable.shape) else (),
            initializer=keras.initializers.Constant(value),
            dtype=variable.dtype,
            name=name,
        )

    def get_config(self) -> dict[str, Any]:
        own = {name: getattr(self, name) for name in self._settings}
        return {**super().get_config(), **own}


@keras.saving.register_keras_serializable(package="de_core")
class RowwiseAdagrad(_Rowwise):
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

    _settings = ("initial_accumulator_value", "epsilon")

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

    def _make_slots(self, variables: Sequence[Any]) -> None:
        initial = self.initial_accumulator_value
        self._accumulators = [self._row_slot(each, "accumulator", initial) for each in variables]

    def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        """Updates one ordinary variable."""
        ops = keras.ops
        rate = ops.cast(learning_rate, variable.dtype)
        gradient = ops.cast(gradient, variable.dtype)
        accumulator = self._accumulators[self._get_variable_index(variable)]
        self.assign_add(accumulator, _mean_square(gradient))
        self.assign_sub(variable, rate * gradient / (ops.sqrt(accumulator) + self.epsilon))


@keras.saving.register_keras_serializable(package="de_core")
class RowwiseAdam(_Rowwise):
    """Adam whose second moment averages the mean square of each row's gradient.

    FBGEMM's table-batched embeddings call this rule PARTIAL_ROWWISE_ADAM. With g the gradient of a
    row in step t: `m = beta_1 * m + (1 - beta_1) * g` and
    `v = beta_2 * v + (1 - beta_2) * mean(g ** 2)`, then
    `row -= learning_rate * m / (1 - beta_1 ** t) / (sqrt(v / (1 - beta_2 ** t)) + epsilon)`. A
    dynamic table runs the rule inside the table and keeps one `v` per row, a float32 or float64. In
    an ordinary variable, the last axis spans a row.

    Args:
        learning_rate: A float or a schedule.
        beta_1: How slowly the first moment changes, from 0 to 1.
        beta_2: How slowly the second moment changes, from 0 to 1.
        epsilon: A small number that keeps the denominator above zero.
        **settings: The settings that every Keras optimizer takes, such as `clipnorm`.

    Raises:
        ValueError: Keras does not know a setting.

    Example:
    >>> import tensorflow as tf
    >>> import de_core as de
    >>> optimizer = de.DynamicEmbeddingOptimizer(RowwiseAdam(0.1))
    >>> users = de.Variable(dim=4, name="users")
    >>> optimizer.apply([tf.IndexedSlices(tf.ones([1, 4]), tf.constant([7], tf.int64))], [users])
    >>> [round(float(value), 3) for value in users.lookup([7])[0]]
    [-0.1, -0.1, -0.1, -0.1]
    """

    _settings = ("beta_1", "beta_2", "epsilon")

    def __init__(
        self,
        learning_rate: Any = 0.001,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float = 1e-7,
        **settings: Any,
    ) -> None:
        super().__init__(learning_rate=learning_rate, **settings)
        self.beta_1 = beta_1
        self.beta_2 = beta_2
        self.epsilon = epsilon

    def _make_slots(self, variables: Sequence[Any]) -> None:
        self._momentums = [
            self.add_variable_from_reference(each, name="momentum") for each in variables
        ]
        self._velocities = [self._row_slot(each, "velocity", 0.0) for each in variables]

    def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        """Updates one ordinary variable."""
        ops = keras.ops
        rate = ops.cast(learning_rate, variable.dtype)
        gradient = ops.cast(gradient, variable.dtype)
        step = ops.cast(self.iterations + 1, variable.dtype)
        unbias_1, unbias_2 = (
            1 - ops.power(ops.cast(beta, variable.dtype), step)
            for beta in (self.beta_1, self.beta_2)
        )
        number = self._get_variable_index(variable)
        first, second = self._momentums[number], self._velocities[number]
        self.assign_add(first, (gradient - first) * (1 - self.beta_1))
        self.assign_add(second, (_mean_square(gradient) - second) * (1 - self.beta_2))
        root = ops.sqrt(second / unbias_2) + self.epsilon
        self.assign_sub(variable, rate * (first / unbias_1) / root)


def _mean_square(gradient: Any) -> Any:
    """Returns the mean square of each row of a gradient, in the shape of `_row_slot`."""
    axis = -1 if len(gradient.shape) else None
    return keras.ops.mean(keras.ops.square(gradient), axis=axis, keepdims=True)
