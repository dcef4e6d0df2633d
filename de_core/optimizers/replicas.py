"""Updates tables once for all replicas of one process, as in `tf.distribute.MirroredStrategy`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from de_core.optimizers.clipping import Trained


def several_here() -> bool:
    """Returns whether the caller is one of several replicas that share this process's tables."""
    context = tf.distribute.get_replica_context()
    if context is None or context.num_replicas_in_sync == 1:
        return False
    return not isinstance(context.strategy, tf.distribute.MultiWorkerMirroredStrategy)


def update_once(trained: Trained, update: Callable[[Trained], object]) -> None:
    """Joins the gradients of all replicas and updates the tables once.

    Args:
        trained: Pairs of this replica's gradient and its table.
        update: Updates the tables by the joined gradients.
    """
    tables = [table for _, table in trained]
    slices = [(gradient.indices, gradient.values) for gradient, _ in trained]

    def merged(strategy: Any, slices: Any) -> None:
        joined = [
            tf.IndexedSlices(_joined(strategy, values), _joined(strategy, ids))
            for ids, values in slices
        ]
        update(list(zip(joined, tables, strict=True)))

    tf.distribute.get_replica_context().merge_call(merged, args=(slices,))


def _joined(strategy: Any, values: Any) -> tf.Tensor:
    return tf.concat(strategy.experimental_local_results(values), 0)
