"""The tables of this process that are in use."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Iterable
from typing import TYPE_CHECKING

import tensorflow as tf

if TYPE_CHECKING:
    from de_core.tables.sharded import ShardedTable

# Numbered in order of creation.
_all: weakref.WeakValueDictionary[int, ShardedTable] = weakref.WeakValueDictionary()
_numbers = itertools.count()


def add(table: ShardedTable) -> None:
    """Lists a new table. It is listed until it is freed."""
    _all[next(_numbers)] = table


def tables_behind(handles: Iterable[tf.Tensor]) -> list[ShardedTable]:
    """Returns the tables whose resource handles are among a function's captured tensors."""
    wanted = {id(handle) for handle in handles}
    return [
        table
        for _, table in sorted(_all.items())
        if any(id(shard.resource_handle) in wanted for shard in table.tables)
    ]


def tables() -> list[ShardedTable]:
    """Returns the current graph's tables; in eager mode, all tables of this process."""
    graph = None if tf.executing_eagerly() else tf.compat.v1.get_default_graph()
    found = []
    for _, table in sorted(_all.items()):
        handle = table.tables[0].resource_handle
        if (handle.graph if tf.is_symbolic_tensor(handle) else None) is graph:
            found.append(table)
    return found
