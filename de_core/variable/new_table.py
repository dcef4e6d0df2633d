"""Creates the table of a `Variable` from the user's arguments."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from de_core.base.checks import checked_init_size, received
from de_core.base.keras import keras
from de_core.base.types import DTypeLike, InitializerLike
from de_core.distributed import strategy
from de_core.distributed.router import WorkerRouter
from de_core.storage.creator import KVCreator, storage_creator
from de_core.tables import initial_rows
from de_core.tables.admission import check_integer
from de_core.tables.first_rows import SharedRows
from de_core.tables.policy import TablePolicy
from de_core.tables.restrict import FrequencyRestrictPolicy
from de_core.tables.router import Partitioner, Router
from de_core.tables.sharded import ShardedTable
from de_core.tables.spec import TableSpec
from de_core.tables.table import Table
from de_core.tables.tier import DiskTier
from de_core.variable.graph import graph_mode
from de_core.variable.own_optimizer import OwnOptimizer

DEFAULT_NAME = "DynamicEmbedding_Variable"


def own_name(given: Any, graph: graph_mode.GraphState | None) -> str:
    """Returns the name of a new Variable. Makes a default name, and any in a graph, unique.

    Raises:
        TypeError: `given` is not a string, or it is empty.
    """
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


def checked_spec(
    key_dtype: DTypeLike,
    value_dtype: DTypeLike,
    dim: int,
    devices: Sequence[str] | None,
    tier: DiskTier | None = None,
    slot_dtype: DTypeLike | None = None,
    kv_creator: KVCreator | None = None,
) -> TableSpec:
    """Makes the table's spec from the user's arguments.

    Raises:
        TypeError: An argument has a wrong type, or a dtype is not supported.
        ValueError: An argument is out of range.
    """
    if devices is None and storage_creator(kv_creator) is None:
        devices = strategy.devices_of_the_scope()
    return TableSpec.checked(key_dtype, value_dtype, dim, devices, tier, slot_dtype)


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
    """Creates a table in memory or in a storage, whole or divided among workers.

    Raises:
        TypeError: An argument has a wrong type.
        ValueError: An argument is out of range.
        NotImplementedError: The storage or the distribution strategy does not support an argument.
    """
    init_size = checked_init_size(init_size)
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


def check_shared_rows(num_oov_indices: int, table: ShardedTable) -> None:
    """Raises unless a table may have so many shared rows.

    Raises:
        TypeError: `num_oov_indices` is not a whole number, or the values are not floating-point.
        ValueError: `num_oov_indices` is out of range.
        NotImplementedError: The table is not in this process, or in a TensorFlow 1 graph.
    """
    check_integer("num_oov_indices", num_oov_indices, 0, 2**31 - 1)
    if not num_oov_indices:
        return
    if not table.spec.value_dtype.is_floating:
        raise TypeError(
            "`num_oov_indices` needs floating-point values, because shared rows are trained. "
            + received(num_oov_indices=num_oov_indices, value_dtype=table.spec.value_dtype.name)
        )
    if not table.pools or table.is_remote or graph_mode.current() is not None:
        raise NotImplementedError(
            "`num_oov_indices` needs a table in the memory of this process, in eager mode. "
            + received(num_oov_indices=num_oov_indices, devices=list(table.spec.devices))
            + " Leave out `num_oov_indices`, or make the table without `kv_creator` and outside "
            "of strategies and TensorFlow 1 graphs."
        )


def new_shared_rows(of: Any, count: int, own: OwnOptimizer | None, kind: Callable[..., Any]) -> Any:
    """Creates the Variable of the rows that ids without a row share, or returns None for none.

    Args:
        of: The Variable that these ids are looked up in.
        count: Number of shared rows.
        own: The own optimizer of that Variable, or None.
        kind: The class `Variable`.
    """
    if not count:
        return None
    made = kind(
        dim=of.dim,
        value_dtype=of.value_dtype,
        devices=of.devices[:1],
        name=f"{of.name}_shared",
        initializer=of.initializer,
        trainable=of.trainable,
        checkpoint=of.checkpoint,
        init_size=count,
        restrict_policy=FrequencyRestrictPolicy,  # an export without the rows needs its column
        optimizer=None if own is None else own.get_config()["optimizer"],
        slot_dtype=of._table.spec.slot_dtype,
    )
    made.find_or_insert(tf.range(count, dtype=tf.int64))
    of._table.first_rows = SharedRows(made._table, count)
    return made


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
