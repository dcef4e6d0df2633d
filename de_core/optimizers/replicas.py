"""Steps of several replicas or workers that train a table together."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

from de_core.base.checks import received
from de_core.optimizers import clipping
from de_core.optimizers.clipping import Trained
from de_core.tables.sharded import ShardedTable


def several_replicas() -> bool:
    """Returns whether the caller is one of several replicas that share this process's tables."""
    if not tf.distribute.has_strategy():
        return False
    context = tf.distribute.get_replica_context()
    if context is None or context.num_replicas_in_sync == 1:
        return False
    return not isinstance(context.strategy, tf.distribute.MultiWorkerMirroredStrategy)


def update_once(
    trained: Trained, update: Callable[[Trained], list[tf.Operation]]
) -> list[tf.Operation]:
    """Joins the gradients of all replicas of a MirroredStrategy, and updates the tables once.

    Returns the operation of the update, in a graph.
    """

    def merged(strategy: Any, slices: Any) -> tf.Operation | None:
        parts = strategy.experimental_local_results
        joined = [
            tf.IndexedSlices(tf.concat(parts(values), 0), tf.concat(parts(ids), 0))
            for ids, values in slices
        ]
        done = update([(each, table) for each, (_, table) in zip(joined, trained, strict=True)])
        return None if tf.executing_eagerly() else tf.group(*done)

    slices = [(gradient.indices, gradient.values) for gradient, _ in trained]
    done = tf.distribute.get_replica_context().merge_call(merged, args=(slices,))
    return [] if done is None else [done]


def refuse_settings(
    optimizer: Any, table: ShardedTable, several: bool, others: Mapping[str, object]
) -> None:
    """Raises NotImplementedError if an optimizer of tables uses a setting of one replica alone.

    Args:
        optimizer: The optimizer that wraps another one.
        table: A table that replicas or workers train together.
        several: True for replicas of one process.
        others: Further values that must be false, by what they are.
    """
    inner = vars(optimizer)["inner_optimizer"]
    own: dict[str, Any] = {
        **others,
        "reject_nonfinite": optimizer.reject_nonfinite,
        "an optimizer without a rule inside tables": optimizer._generic and type(inner).__name__,
    }
    names = ["global_clipnorm"]
    if several:
        names = ["use_ema", "gradient_accumulation_steps", *clipping.SETTINGS]
    refused = {**own, **{name: getattr(inner, name, None) for name in names}}
    refused = {name: value for name, value in refused.items() if value}
    if refused:
        raise NotImplementedError(
            "Replicas or workers that train a table together must not use "
            f"{', '.join(refused)}: not every replica has the gradients that it needs. "
            f"{received(table=table.name, **refused)} Turn it off, or train on one replica."
        )
