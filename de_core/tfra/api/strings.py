"""Initial rows of tables with string values."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from de_core.base.checks import received


def string_row(initializer: Any, dim: int) -> tf.Tensor:
    """Returns the row of a key without a row in a table of strings.

    Args:
        initializer: A string, an array or tensor of one or `dim` strings, or a function
            `f(shape)` that returns them.
        dim: Values per row.

    Returns:
        Strings, [dim].

    Raises:
        TypeError: `initializer` is something else.
    """
    try:
        if callable(initializer):
            config: dict[str, Any] = getattr(initializer, "get_config", dict)()
            initializer = config["value"] if "value" in config else initializer([dim])
        row = tf.reshape(tf.convert_to_tensor(initializer, tf.string), [-1])
        return tf.broadcast_to(row, [dim])
    except (TypeError, ValueError, tf.errors.OpError) as error:
        raise TypeError(
            f"The `initializer` of string values must give one string or {dim}. "
            f"{received(initializer=initializer)}"
        ) from error
