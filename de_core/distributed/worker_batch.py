"""Reads and updates several tables that are divided among workers, with shared collectives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import tensorflow as tf

from de_core.distributed.router import WorkerRouter
from de_core.distributed.workers import KeyDelivery
from de_core.tables.router import summed_rows
from de_core.tables.sharded import ShardedTable, TableStep

# The attribute of a keys' tensor that has the delivery of the keys and their number in it.
_DELIVERY = "_de_delivery"


def find(tables: Sequence[ShardedTable], keys: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    """Reads rows of tables of the same workers, which call it together; see `request_groups`."""
    delivery = _sent(tables, keys)
    return delivery.answer(
        [
            table.tables[0].find(part)[0]
            for table, part in zip(tables, delivery.arrived, strict=True)
        ]
    )


def apply(steps: Sequence[TableStep]) -> list[tf.Operation | None]:
    """Runs steps in tables of the same workers, which call it together; see `request_groups`."""
    tables = [step.table for step in steps]
    keys, values = zip(
        *(summed_rows(step.keys, step.gradient.values) for step in steps), strict=True
    )
    delivery = _earlier(keys) or _sent(tables, keys)
    return [
        step.table.updated(step.gradient.indices, step.run_in_shard(0, part, rows, step.settings))
        for step, part, rows in zip(steps, delivery.arrived, delivery.send(values), strict=True)
    ]


def _sent(tables: Sequence[ShardedTable], keys: Sequence[tf.Tensor]) -> KeyDelivery:
    """Sends keys to their workers, and notes on the keys that they were sent."""
    shards = [table.router.shards(each) for table, each in zip(tables, keys, strict=True)]
    router = cast(WorkerRouter, tables[0].router)
    delivery = KeyDelivery(router.workers, keys, shards)
    for number, each in enumerate(keys):
        setattr(each, _DELIVERY, (delivery, number))
    return delivery


def _earlier(keys: Sequence[tf.Tensor]) -> KeyDelivery | None:
    """Returns the delivery that sent the same keys in the same graph; None if there is none.

    A gradient in a graph has the keys of its lookup. So their workers have these keys already.
    """
    notes = [getattr(each, _DELIVERY, (None, 0)) for each in keys]
    delivery = notes[0][0]
    if delivery is None or any(each is not delivery for each, _ in notes):
        return None
    return delivery.part([number for _, number in notes])
