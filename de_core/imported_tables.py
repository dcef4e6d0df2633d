"""The tables of a MetaGraph that was imported: what an optimizer or a Saver made there needs.

A MetaGraph brings the ops of tables along and TensorFlow's variables, not Python's objects. So each
Variable leaves a record in a collection, by which its tables are found again.
"""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import tensorflow as tf

from de_core.config import TableSpec, received
from de_core.sharded_table import ShardedTable
from de_core.sharding import Router
from de_core.table import Table
from de_core.table_policy import TablePolicy

#: Collection of the records, strings of JSON.
RECORDS = "dynamic_embedding_records"


@dataclasses.dataclass(frozen=True)
class _ImportedPolicy(TablePolicy):
    """Of tables that hold their policies themselves: what concerns a step outside of them."""

    asked: bool = False

    @property
    def asks_each_step(self) -> bool:
        """Whether a step that is computed outside the tables must tell them of itself."""
        return self.asked


class _ImportedTable(Table):
    """One table whose op is in the graph already."""

    def __init__(self, name: str, spec: TableSpec, handle: tf.Tensor, about: list[str]) -> None:
        self._handle = handle
        super().__init__(name, spec, None, handle.op.device, 0, metadata=about)  # type: ignore[arg-type]

    def _create_resource(self) -> tf.Tensor:
        return self._handle


class ImportedTables(ShardedTable):
    """The tables of one Variable that came with a MetaGraph.

    Args:
        record: What the Variable left.
        scope: The prefix that the import put before all names, such as "model/", or nothing.
    """

    def __init__(self, record: dict[str, Any], scope: str) -> None:
        self._record = record
        spec = TableSpec(
            tf.as_dtype(record["key_dtype"]),
            tf.as_dtype(record["value_dtype"]),
            record["dim"],
            tuple(record["devices"]),
        )
        policy = _ImportedPolicy(asked=record["asks_each_step"])
        graph = tf.compat.v1.get_default_graph()
        tables = [
            _ImportedTable(
                part["name"],
                spec,
                graph.get_tensor_by_name(scope + part["handle"]),
                part["about"],
            )
            for part in record["tables"]
        ]
        router = Router(None, len(spec.devices))
        super().__init__(scope + record["name"], spec, tables, router, policy)

    @property
    def is_saved(self) -> bool:
        """Whether Savers save the rows."""
        return bool(self._record["saved"])


def leave_record(anchor: tf.Variable, store: ShardedTable, saved: bool) -> None:
    """Puts into a graph's collection what finds the tables again in a copy of the graph.

    Args:
        anchor: What stands for the tables in the graph.
        store: The tables.
        saved: Whether Savers save them.
    """
    spec = store.spec
    record = {
        "anchor": anchor.name,
        "name": store.name,
        "key_dtype": spec.key_dtype.name,
        "value_dtype": spec.value_dtype.name,
        "dim": spec.dim,
        "devices": list(spec.devices),
        "asks_each_step": store.policy.asks_each_step,
        "saved": saved,
        "only_here": _only_here(store),
        "tables": [
            {
                "name": table.name,
                "handle": table.resource_handle.name,
                "about": list(table.metadata),
            }
            for table in store.tables
        ],
    }
    tf.compat.v1.add_to_collection(RECORDS, json.dumps(record))


def _only_here(store: ShardedTable) -> str:
    """Returns which Python objects of this process a step on the tables needs, or nothing."""
    reasons = {
        "a storage of a kv_creator": store.outlives_its_process,
        "a partitioner": not store.router.is_hashed,
        "a restrict_policy": store.on_update is not None,
        "parameter servers": store.is_remote,
    }
    return next((reason for reason, holds in reasons.items() if holds), "")


def found_for(anchor: tf.Variable) -> ImportedTables:
    """Makes what an optimizer needs of the tables that an imported variable stands for.

    Args:
        anchor: A variable of the current graph.

    Raises:
        ValueError: The tables need more of the process that made them than a MetaGraph brings.
    """
    for text in tf.compat.v1.get_collection(RECORDS):
        # An import under a scope puts that before strings, too.
        scope, brace, rest = tf.compat.as_str(text).partition("{")
        record = json.loads(brace + rest)
        if anchor.name != scope + record["anchor"]:
            continue
        if record["only_here"]:
            reason = f"a table with {record['only_here']}"
            break
        return ImportedTables(record, scope)
    else:
        reason = "a table of a graph that was exported by an earlier version of this library"
    raise ValueError(
        "A new optimizer needs of an imported table what a MetaGraph brings, and this one's is "
        "not all there: make the graph anew by the code that made it, and restore its variables. "
        + received(variable=anchor.name, which_is=reason)
    )
