"""The state of row-wise rules in ordinary variables: one number per row."""

from __future__ import annotations

from typing import Any

import keras


def row_state(optimizer: keras.optimizers.Optimizer, variable: Any, name: str, value: float) -> Any:
    """Makes a variable with one number per row of an ordinary variable.

    Args:
        optimizer: The optimizer that owns the state.
        variable: The variable to train. Its last axis spans a row.
        name: The name of the state.
        value: The initial value of each number.
    """
    return optimizer.add_variable(
        (*variable.shape[:-1], 1) if len(variable.shape) else (),
        initializer=keras.initializers.Constant(value),
        dtype=variable.dtype,
        name=name,
    )


def mean_square(gradient: Any) -> Any:
    """Returns the mean square of each row of a gradient, in the shape of `row_state`.

    Args:
        gradient: The gradient of an ordinary variable.
    """
    axis = -1 if len(gradient.shape) else None
    return keras.ops.mean(keras.ops.square(gradient), axis=axis, keepdims=True)
