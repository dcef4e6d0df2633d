"""Updates tables once for all replicas of one process, as in `tf.distribute.MirroredStrategy`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from de_core.base.checks import received
from de_core.optimizers.clipping import Trained
from de_core.tables.sharded import ShardedTable


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


def check_step(table: ShardedTable, **settings: Any) -> None:
    """Raises unless replicas or workers can do a step of an optimizer together.

    Args:
        table: The trained table.
        **settings: Values of settings that must be off when several replicas or workers train.

    Raises:
        NotImplementedError: Several replicas or workers train, and one of the settings is on.
    """
    wanted = {name: value for name, value in settings.items() if value}
    if wanted and (table.router.is_spread or several_here()):
        raise NotImplementedError(
            "Replicas or workers that train a table together must not use "
            f"{', '.join(wanted)}: not every replica has the gradients that it needs. "
            f"{received(table=table.name, **wanted)} Turn it off, or train on one replica."
        )
