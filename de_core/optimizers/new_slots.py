"""Makes an optimizer's slots in a table before its first step."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from de_core.optimizers.targets import Targets
from de_core.optimizers.tf1.optimizer import Tf1Optimizer
from de_core.tables.sharded import ShardedTable
from de_core.tables.spec import arithmetic_dtype


def make_slots(optimizer: Any, table: ShardedTable) -> list[Any]:
    """Makes the slots that an optimizer keeps in a table, with their initial values.

    Does a step on no row. The caller must set the optimizer's numbers of steps afterwards.

    Args:
        optimizer: The result of `DynamicEmbeddingOptimizer`.
        table: The table.

    Returns:
        The operations; in eager mode an empty list.
    """
    spec = table.spec
    nothing = tf.IndexedSlices(
        tf.zeros([0, spec.dim], arithmetic_dtype(spec.value_dtype)), tf.zeros([0], spec.key_dtype)
    )
    if isinstance(optimizer, Tf1Optimizer):
        return optimizer._apply_to_tables(Targets([(nothing, table)], [], []))
    product = optimizer.u_product
    before = tf.identity(product) if tf.executing_eagerly() else None
    optimizer._add_table(table)
    done = optimizer._apply_to_tables([(nothing, table)])
    if before is not None:
        product.assign(before)
    return done
