"""Groups tables whose requests can travel together."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any

from de_core.distributed import remote_batch, worker_batch
from de_core.distributed.router import WorkerRouter
from de_core.tables.sharded import ShardedTable


def request_groups(tables: Iterable[ShardedTable]) -> list[tuple[Any, list[int]]]:
    """Groups tables whose lookups and updates can share requests.

    Returns:
        Pairs of a module and table numbers. The module is None for tables that must be used one by
        one. Otherwise its `find` takes these tables, each once, and for each table distinct keys
        [n]. It returns for each table the rows [n, dim]. Its `apply` takes the optimizer steps of
        these tables. It returns one operation per table; in eager mode, None per table.
    """
    found: dict[Hashable, tuple[Any, list[int]]] = {}
    for number, table in enumerate(tables):
        carrier: Any = None
        group = 0
        if isinstance(table.router, WorkerRouter):
            carrier, group = worker_batch, id(table.router.workers)
        elif table.is_remote:
            carrier = remote_batch
        found.setdefault((carrier, group), (carrier, []))[1].append(number)
    return list(found.values())
