"""Does the steps of several tables that have optimizers of their own."""

from __future__ import annotations

from collections.abc import Iterable

import tensorflow as tf

from de_core.optimizers import plan
from de_core.tables.table_step import TableStep
from de_core.variable.own_optimizer import OwnOptimizer


def run(owned: Iterable[tuple[tf.IndexedSlices, OwnOptimizer]]) -> None:
    """Does a step of each optimizer. Tables in other processes share their requests.

    Args:
        owned: Pairs of a gradient without a loss scale, and the optimizer of its table.
    """
    begun: list[OwnOptimizer] = []
    steps: list[TableStep] = []
    for gradient, own in owned:
        of_table = own.begin(gradient)
        if of_table is None:
            own.step_alone(gradient)
        else:
            begun.append(own)
            steps += of_table
    done = [each for each in plan.run(steps) if each is not None]
    if len(done) > 1:
        done = [tf.group(*done)]  # a server then sends one signal, not one to each optimizer
    for own in begun:
        own.end(done)
