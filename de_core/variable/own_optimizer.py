"""The optimizer of one table, which updates the table when Keras hands it a gradient.

The package `optimizers` is above this one. It registers the function that makes such an optimizer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from de_core.base.checks import received
from de_core.base.keras import LEGACY, keras
from de_core.base.types import Optimizer, TrainedVariable
from de_core.tables.sharded import ShardedTable

_ATTRIBUTE = "_de_optimizer"

#: An optimizer of Keras 3, its name or its configuration.
OptimizerLike: TypeAlias = Optimizer | str | dict[str, Any]
#: A `TableOptimizer` of the package `optimizers`.
OwnOptimizer: TypeAlias = keras.optimizers.Optimizer

_makers: list[Callable[[OptimizerLike, ShardedTable], OwnOptimizer]] = []


def register(maker: Callable[[OptimizerLike, ShardedTable], OwnOptimizer]) -> None:
    """Sets the function that makes the optimizer of a table from a user's argument."""
    _makers[:] = [maker]


def new(
    optimizer: OptimizerLike | None, table: ShardedTable, in_a_graph: bool
) -> OwnOptimizer | None:
    """Makes the optimizer of a new table, or returns None if the user gave none."""
    if optimizer is None:
        return None
    if LEGACY or in_a_graph:
        where = "tf_keras" if LEGACY else "a graph of TensorFlow 1"
        raise NotImplementedError(
            "An optimizer per table needs Keras 3 in eager mode, because only Keras 3 hands a "
            f"table its gradient. {received(optimizer=optimizer)} with {where}. Leave out "
            "`optimizer` and use de.DynamicEmbeddingOptimizer(optimizer) for the whole model."
        )
    if not table.spec.value_dtype.is_floating:
        raise TypeError(
            "A table with an optimizer must hold floating-point values. "
            + received(table=table.name, value_dtype=table.spec.value_dtype.name)
            + " Make it with value_dtype=tf.float32, or leave out `optimizer`."
        )
    return _makers[0](optimizer, table)


def attach(optimizer: OwnOptimizer | None, variable: TrainedVariable) -> None:
    """Notes on an anchor which optimizer its table has."""
    object.__setattr__(variable, _ATTRIBUTE, optimizer)


def optimizer_of(variable: object) -> OwnOptimizer | None:
    """Returns the optimizer of an anchor's table; None for every other variable."""
    return getattr(variable, _ATTRIBUTE, None)
