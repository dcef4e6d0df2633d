"""Finds how many steps an optimizer of TensorFlow 1 had done when a Saver saved it."""

from __future__ import annotations

import math

from de_core.tfra_files.tensors import Tensors

_SMALLEST = 1e-30  # powers below lose digits


def of_saver(tensors: Tensors, beta_1: float, beta_2: float) -> int | None:
    """Returns the number of steps from Adam's powers and the global step. None if there is none.

    Args:
        tensors: The checkpoint of a Saver.
        beta_1: Adam's first decay.
        beta_2: Adam's second decay.
    """
    counted = int(tensors.read("global_step")) if "global_step" in tensors.shapes else None
    for name, beta in (("beta1_power", beta_1), ("beta2_power", beta_2)):
        if name not in tensors.shapes:
            continue
        power = float(tensors.read(name))  # beta ** (steps + 1)
        if power > _SMALLEST:
            steps = round(math.log(power) / math.log(beta)) - 1
            # The product of many rounded factors is not exact.
            is_near = counted is not None and abs(counted - steps) <= steps // 100 + 1
            return counted if is_near else steps
    return counted
