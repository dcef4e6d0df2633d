"""Finds the Keras optimizer that is calling, because Keras does not pass it as an argument."""

from __future__ import annotations

from types import FrameType
from typing import Any

import keras

from de_core.base import call_stack


def caller_of(called: Any) -> Any:
    """Returns the innermost other Keras optimizer whose method is running, or None.

    Args:
        called: The optimizer that asks.
    """

    def is_sought(frame: FrameType) -> bool:
        owner = frame.f_locals.get("self")
        return owner is not called and isinstance(owner, keras.optimizers.Optimizer)

    frame = call_stack.nearest(is_sought)
    return None if frame is None else frame.f_locals["self"]


def check_not_scaled_by_keras() -> None:
    """Raises TypeError if a method of a `keras.optimizers.LossScaleOptimizer` is running.

    Keras's class does not unscale gradients of variables with `overwrite_with_gradient`, so rows
    would move 2**15 times too far. A `de.LossScaleOptimizer` is allowed.
    """
    if call_stack.nearest(_is_method_of_a_loss_scale) is not None:
        raise TypeError(
            "A dynamic loss scale around an optimizer of tables must be a de.LossScaleOptimizer. "
            "Received: a keras.optimizers.LossScaleOptimizer. "
            "Use de.LossScaleOptimizer(optimizer)."
        )


def _is_method_of_a_loss_scale(frame: FrameType) -> bool:
    owner = frame.f_locals.get("self")
    is_ours = getattr(owner, "keeps_tables_sparse", False)
    return isinstance(owner, keras.optimizers.LossScaleOptimizer) and not is_ours
