"""Creates the table of a `Variable` from the user's arguments."""

from __future__ import annotations

from typing import Any

from de_core.base.checks import check_integer, received
from de_core.base.keras import keras
from de_core.base.types import InitializerLike
from de_core.distributed import strategy
from de_core.distributed.router import WorkerRouter
from de_core.storage.creator import KVCreator, storage_creator
from de_core.tables import initial_rows
from de_core.tables.policy import TablePolicy
from de_core.tables.router import Partitioner, Router
from de_core.tables.sharded import ShardedTable
from de_core.tables.spec import TableSpec
from de_core.tables.table import Table
from de_core.tables.tier import DiskTier
from de_core.variable.graph import graph_mode

DEFAULT_NAME = "DynamicEmbedding_Variable"


def own_name(given: Any, graph: graph_mode.GraphState | None) -> str:
    """Returns the name of a new Variable. Makes a default name, and any in a graph, unique."""
    if given is not None and (not isinstance(given, str) or not given):
        raise TypeError(f"`name` must be a non-empty string or None. {received(name=given)}")
    name = DEFAULT_NAME if given is None else given
    if graph is not None:
        return graph.unique_name(name)
    return numbered(name) if name == DEFAULT_NAME else name


def numbered(name: str) -> str:
    """Returns a default name as it is at its first use, then with the suffix _1, _2 and so on."""
    count = keras.backend.get_uid(name)
    return name if count == 1 else f"{name}_{count - 1}"


def new_table(
    name: str,
    spec: TableSpec,
    policy: TablePolicy,
    *,
    partitioner: Partitioner | None,
    initializer: InitializerLike,
    init_size: int,
    kv_creator: KVCreator | None,
) -> ShardedTable:
    """Creates a table in memory or in a storage, whole or divided among workers."""
    check_integer("init_size", init_size, 0, 2**63 - 1)
    init_size = int(init_size)
    creator = storage_creator(kv_creator)
    workers = strategy.workers_of_the_scope()
    if spec.tier is not None:
        _check_tier(spec.tier, policy, creator, divided=workers is not None)
    if workers is None:
        router = Router(partitioner, len(spec.devices))
    else:
        strategy.check_spec(spec, creator)
        router = WorkerRouter(partitioner, workers)
    row = initial_rows.resolve(
        initializer, name=name, dim=spec.dim, value_dtype=spec.value_dtype, height=init_size
    )
    if creator is not None:
        tables = creator.tables(name, spec, row, init_size, policy, router)
    else:
        tables = [
            Table(
                router.table_name(name, number),
                spec,
                row,
                device,
                init_size // router.count,
                policy.text(number, router.count),
                router.metadata(name, number),
            )
            for number, device in enumerate(spec.devices, router.first)
        ]
    return ShardedTable(name, spec, tables, router, policy)


def _check_tier(
    tier: DiskTier, policy: TablePolicy, creator: KVCreator | None, *, divided: bool
) -> None:
    """Raises if a tier does not support another argument."""
    if creator is not None:
        raise NotImplementedError(
            "`tier` needs rows in main memory. "
            f"{received(tier=tier, kv_creator=creator)} Leave out `kv_creator` or `tier`."
        )
    if policy.evictions:
        raise NotImplementedError(
            "A table with a `tier` keeps all rows, so it has no `eviction`. "
            f"{received(tier=tier, eviction=policy.evictions)} Leave out `eviction` or `tier`."
        )
    if divided or graph_mode.current() is not None:
        raise NotImplementedError(
            "`tier` needs eager mode, and no MultiWorkerMirroredStrategy. "
            f"{received(tier=tier)} Leave out `tier`."
        )
