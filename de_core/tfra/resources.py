"""The variables, tables and vocabularies of a SavedModel of `tfra`, copied into new ones."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import tensorflow as tf

from de_core.base.ops import library
from de_core.tfra.graph import TABLE
from de_core.variable.variable import Variable

_SHARD = re.compile(r"(?P<table>.+)_mht_\d+of\d+")
_VARIABLES = ("VarHandleOp", "VariableV2")
_VOCABULARY = "HashTableV2"


class Resources(tf.Module):
    """The state that a model's signatures use. A copy is keyed by the node that made the original.

    Args:
        parts: The rewritten graphs of the signatures.
        ops: The OpDefs of the model's ops.

    Raises:
        ValueError: A signature uses another kind of resource.
    """

    def __init__(self, parts: Iterable[Any], ops: Iterable[Any]) -> None:
        super().__init__()
        self._nodes = _creators(parts, ops)
        self._copies: dict[str, Any] = {}
        self._tables: dict[str, Variable] = {}

    @property
    def names(self) -> set[str]:
        """Names of the nodes that create the originals."""
        return set(self._nodes)

    def tensor(self, name: str) -> tf.Tensor:
        """Returns, in a function's graph, what replaces the output of the node `name`."""
        if name in self._tables:
            return tf.identity(self._tables[name].tables[0].resource_handle)
        copy = self._copies[name]
        if self._nodes[name].op == "VariableV2":  # its output is the value
            return copy.read_value()
        return tf.identity(copy.handle if isinstance(copy, tf.Variable) else copy.resource_handle)

    def copy(self, session: tf.compat.v1.Session) -> None:
        """Copies the values from a session that has loaded the model.

        Raises:
            ValueError: A key is in two shards of a table.
        """
        whole: dict[tuple[Any, ...], Variable] = {}
        rows: dict[str, int] = {}
        for name, node in self._nodes.items():
            original = session.graph.get_tensor_by_name(f"{name}:0")
            if node.op in _VARIABLES:
                self._copies[name] = _variable(node, original, session)
            elif node.op == _VOCABULARY:
                self._copies[name] = _vocabulary(node, original, session)
            else:
                kind = _kind(node)
                if kind not in whole:
                    own, key, value, dim = kind
                    whole[kind] = Variable(key, value, dim, name=own.rpartition("/")[2])
                table = self._tables[name] = whole[kind]
                rows[table.name] = rows.get(table.name, 0) + _copy_rows(original, table, session)
        for table in whole.values():
            if int(table.size()) != rows[table.name]:
                raise ValueError(
                    "A key must be in only one shard of a table. Received: "
                    f"table={table.name!r} with {rows[table.name]} rows in its shards and "
                    f"{int(table.size())} keys."
                )


def _creators(parts: Iterable[Any], ops: Iterable[Any]) -> dict[str, Any]:
    """Returns the nodes that create resources, by name."""
    resource = tf.resource.as_datatype_enum
    creators = {
        op.name
        for op in ops
        if not op.input_arg and any(each.type == resource for each in op.output_arg)
    }
    creators |= {*_VARIABLES, TABLE}
    nodes = {node.name: node for part in parts for node in part.node if node.op in creators}
    for name, node in nodes.items():
        if node.op not in (*_VARIABLES, TABLE, _VOCABULARY):
            raise ValueError(
                "A signature must only use variables, tables of tfra and static hash tables of "
                f"TensorFlow. Received: node {name!r} of the op {node.op}."
            )
    return nodes


def _variable(node: Any, original: tf.Tensor, session: tf.compat.v1.Session) -> tf.Variable:
    if node.op == "VarHandleOp":
        with session.graph.as_default():
            dtype = tf.as_dtype(node.attr["dtype"].type)
            original = tf.raw_ops.ReadVariableOp(resource=original, dtype=dtype)
    return tf.Variable(session.run(original), name=node.name)


def _vocabulary(node: Any, original: tf.Tensor, session: tf.compat.v1.Session) -> Any:
    key_dtype, value_dtype = _dtypes(node)
    with session.graph.as_default():
        contents = tf.raw_ops.LookupTableExportV2(
            table_handle=original, Tkeys=key_dtype, Tvalues=value_dtype
        )
    keys, values = session.run(contents)
    made = tf.lookup.KeyValueTensorInitializer(keys, values, key_dtype, value_dtype)
    # Each lookup in the graph brings its own default.
    return tf.lookup.StaticHashTable(made, "" if value_dtype == tf.string else 0)


def _kind(node: Any) -> tuple[Any, ...]:
    """Returns a table's name, dtypes and dim, equal for all its shards."""
    match = _SHARD.fullmatch(node.name)
    name = match["table"] if match else node.name
    return (name, *_dtypes(node), node.attr["value_shape"].shape.dim[0].size)


def _dtypes(node: Any) -> tuple[tf.DType, tf.DType]:
    key, value = (tf.as_dtype(node.attr[f"{part}_dtype"].type) for part in ("key", "value"))
    return key, value


def _copy_rows(original: tf.Tensor, table: Variable, session: tf.compat.v1.Session) -> int:
    """Moves all rows of a table in a session into a new table. Returns their number."""
    with session.graph.as_default():
        cursor = tf.compat.v1.placeholder(tf.uint64, [])
        batch = library.de_table_export_batch(
            original, cursor, Tkeys=table.key_dtype, Tvalues=table.value_dtype
        )
        clear = library.de_table_clear(original)
    position, done, rows = 0, False, 0
    while not done:
        keys, values, position, done = session.run(list(batch), {cursor: position})
        if len(keys):
            table.upsert(keys, values)
            rows += len(keys)
    session.run(clear)  # frees the memory before the next table is copied
    return rows
