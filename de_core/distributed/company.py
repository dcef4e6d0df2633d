"""Which tables' requests travel together, and what carries them."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any

from de_core.distributed import remote_batch, worker_batch
from de_core.sharded_table import ShardedTable


def companies(stores: Iterable[ShardedTable]) -> list[tuple[Any, list[int]]]:
    """Divides tables into those that are asked together.

    Args:
        stores: The tables.

    Returns:
        Pairs of a module that has `find` and `apply` and the numbers of the tables it is for; it
        is None for tables that are asked one by one, without company.
    """
    found: dict[Hashable, tuple[Any, list[int]]] = {}
    for number, store in enumerate(stores):
        if store.router.is_spread:
            carrier, group = worker_batch, id(store.router.workers)
        elif remote_batch.may_share(store):
            carrier, group = remote_batch, 0
        else:
            carrier, group = None, 0
        found.setdefault((carrier, group), (carrier, []))[1].append(number)
    return list(found.values())
