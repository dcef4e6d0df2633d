"""Reads and updates several tables that are divided among workers, with shared collectives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import tensorflow as tf

from de_core.base.ops import library
from de_core.distributed.key_delivery import KeyDelivery
from de_core.distributed.router import WorkerRouter
from de_core.tables.router import summed_rows
from de_core.tables.sharded import ShardedTable


def find(tables: Sequence[ShardedTable], keys: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    """Reads rows of several tables. All workers must call it together.

    Args:
        tables: Tables that are divided among the same workers, each once.
        keys: For each table, distinct keys [n].

    Returns:
        For each table, its rows [n, dim].
    """
    delivery = _delivery(tables, keys)
    return delivery.answer(
        [
            table.tables[0].find(part)[0]
            for table, part in zip(tables, delivery.arrived, strict=True)
        ]
    )


def apply(
    trained: Sequence[tuple[tf.IndexedSlices, ShardedTable, tf.Tensor]],
    owner: tf.Tensor,
    **attributes: Any,
) -> list[tf.Operation | None]:
    """Runs one optimizer step in several tables. All workers must call it together.

    Args:
        trained: Triples of a gradient, a table, and hyperparameters, double [k]. All tables are
            divided among the same workers.
        owner: Scalar string, the name under which the tables keep the optimizer's slots.
        **attributes: Attributes of `library.de_table_apply`.

    Returns:
        One operation per table; in eager mode, None per table.
    """
    tables = [table for _, table, _ in trained]
    keys, values = zip(
        *(summed_rows(table.keys_of(gradient), gradient.values) for gradient, table, _ in trained),
        strict=True,
    )
    delivery = _delivery(tables, keys)
    done = [
        table.tables[0].run(library.de_table_apply, part, rows, hyper, owner, **attributes)
        for (_, table, hyper), part, rows in zip(
            trained, delivery.arrived, delivery.send(values), strict=True
        )
    ]
    return [
        table.updated(gradient.indices, operation)
        for (gradient, table, _), operation in zip(trained, done, strict=True)
    ]


def _delivery(tables: Sequence[ShardedTable], keys: Sequence[tf.Tensor]) -> KeyDelivery:
    shards = [table.router.shards(each) for table, each in zip(tables, keys, strict=True)]
    router = cast(WorkerRouter, tables[0].router)
    return KeyDelivery(router.workers, keys, shards)
