"""Finds how many steps an optimizer of TensorFlow 1 had done when a Saver saved it."""

from __future__ import annotations

import math
from typing import Any

from de_core.optimizers.tf1.optimizer import Tf1Optimizer
from de_core.tfra_files.dense_state import Assignment
from de_core.tfra_files.tensors import Tensors

_SMALLEST = 1e-30  # powers below lose digits


def of_saver(tensors: Tensors, optimizer: Any) -> list[Assignment]:
    """Returns the number of steps for an optimizer, from Adam's powers and the global step.

    Args:
        tensors: The checkpoint of a Saver.
        optimizer: The result of `DynamicEmbeddingOptimizer`. Its inner optimizer has Adam's decays.
    """
    inner = optimizer.inner_optimizer
    count = int(tensors.read("global_step")) if "global_step" in tensors.shapes else None
    for number in (2, 1):
        name = f"beta{number}_power"
        beta = getattr(inner, f"_beta{number}", getattr(inner, f"beta_{number}", None))
        power = float(tensors.read(name)) if name in tensors.shapes else 0.0  # beta ** (steps + 1)
        if beta is not None and power > _SMALLEST:
            steps = round(math.log(power) / math.log(beta)) - 1
            # The product of many rounded factors is not exact.
            if count is None or abs(count - steps) > steps // 100 + 1:
                count = steps
    steps_here = optimizer.steps if isinstance(optimizer, Tf1Optimizer) else inner.iterations
    return [] if count is None else [Assignment(steps_here, "global_step", count)]
