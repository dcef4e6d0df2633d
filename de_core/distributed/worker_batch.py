"""Several tables divided among workers, read and updated by the same collectives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import tensorflow as tf

from de_core.base.ops import library
from de_core.distributed.key_delivery import KeyDelivery
from de_core.distributed.router import WorkerRouter
from de_core.tables.router import summed_rows
from de_core.tables.sharded import ShardedTable


def find(stores: Sequence[ShardedTable], keys: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    """Reads rows of several tables; all workers call it together.

    Args:
        stores: Tables that are divided among the same workers, each once.
        keys: Of each [n], distinct.

    Returns:
        The rows of each, [n, dim].
    """
    delivery = _delivery(stores, keys)
    return delivery.answer(
        [
            store.tables[0].find(part)[0]
            for store, part in zip(stores, delivery.arrived, strict=True)
        ]
    )


def apply(
    trained: Sequence[tuple[tf.IndexedSlices, ShardedTable, tf.Tensor]],
    owner: tf.Tensor,
    **attributes: Any,
) -> list[Any]:
    """Runs one optimizer step in several tables; all workers call it together.

    Args:
        trained: Gradients; tables that are divided among the same workers; and hyperparameters,
            double [k].
        owner: Scalar string; the optimizer whose slots are meant.
        **attributes: Of `library.de_table_apply`.

    Returns:
        The operations; in eager mode None for each.
    """
    stores = [store for _, store, _ in trained]
    keys, values = zip(
        *(summed_rows(store.keys_of(gradient), gradient.values) for gradient, store, _ in trained),
        strict=True,
    )
    delivery = _delivery(stores, keys)
    done = [
        store.tables[0].run(library.de_table_apply, part, rows, hyper, owner, **attributes)
        for (_, store, hyper), part, rows in zip(
            trained, delivery.arrived, delivery.send(values), strict=True
        )
    ]
    return [
        store.updated(gradient.indices, operation)
        for (gradient, store, _), operation in zip(trained, done, strict=True)
    ]


def _delivery(stores: Sequence[ShardedTable], keys: Sequence[tf.Tensor]) -> KeyDelivery:
    shards = [store.router.shards(each) for store, each in zip(stores, keys, strict=True)]
    router = cast(WorkerRouter, stores[0].router)
    return KeyDelivery(router.workers, keys, shards)
