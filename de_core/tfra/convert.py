"""Converts SavedModels that `tfra` exported: `convert_saved_model`."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import tensorflow as tf

from de_core.base.ops import library
from de_core.base.types import DTypeLike
from de_core.exports.export import export
from de_core.exports.version import Version, saved_model
from de_core.tfra.graph import TABLE, Signature, all_nodes, check, rewritten, without
from de_core.tfra.ops import load_ops
from de_core.variable.variable import Variable

_SERVE = "serve"
_SHARD = re.compile(r"(?P<table>.+)_mht_\d+of\d+")
_VARIABLES = ("VarHandleOp", "VariableV2")
_VOCABULARY = "HashTableV2"


def convert_saved_model(
    path: str | os.PathLike[str],
    root: str | os.PathLike[str],
    version: int | None = None,
    *,
    dtype: DTypeLike | Mapping[str, DTypeLike] | None = None,
) -> Version:
    """Writes a SavedModel of `tfra` as a version that `de.export` could have written.

    The version has the signatures of the SavedModel, and those that `de.export` adds. Its tables
    are files that a server maps into memory, and its lookups use the ops of this library. Shards of
    one table become one table. Tables that no signature uses, such as optimizer slots, are left
    out. A key without a row reads as the model's own default row, and as zeros in `de_lookup`.

    The lookups of tfra write ids and rows to shared variables, so two requests at once read each
    other's. The new version has no such variables.

    Needs memory for the rows of all tables, twice for the largest one.

    Args:
        path: The directory of a SavedModel that `tfra` exported.
        root: The new model's directory, which contains numbered version directories.
        version: Number of the version; None for the newest number plus one.
        dtype: Storage format of the values, as for `de.export`.

    Returns:
        The version directory, a string with a `report`, as for `de.export`.

    Raises:
        ValueError: `path` holds no SavedModel of `tfra`, or the model needs an op or a resource
            that cannot be converted. The message names it.
        ImportError: `tensorflow_recommenders_addons` is loaded in this process.
        tf.errors.OpError: A file is damaged or cannot be written.

    Example:
    >>> import tempfile
    >>> path, ops = tempfile.mkdtemp() + "/exported", load_ops()
    >>> with tf.Graph().as_default(), tf.compat.v1.Session() as session:
    ...     ids = tf.compat.v1.placeholder(tf.int64, [None])
    ...     table = ops.tfra_cuckoo_hash_table_of_tensors(
    ...         key_dtype=tf.int64, value_dtype=tf.float32, value_shape=[2], name="users"
    ...     )
    ...     rows = ops.tfra_cuckoo_hash_table_find(table, ids, [1.0, 2.0])
    ...     tf.compat.v1.saved_model.simple_save(session, path, {"ids": ids}, {"rows": rows})
    >>> made = convert_saved_model(path, tempfile.mkdtemp())
    >>> model = tf.saved_model.load(made).signatures["serving_default"]
    >>> model(ids=tf.constant([7], tf.int64))["rows"].numpy().tolist()
    [[1.0, 2.0]]
    """
    message = _meta_graph(os.fspath(path))
    check(all_nodes(message.graph_def))
    load_ops()
    signatures = [
        Signature.of(name, each)
        for name, each in sorted(message.signature_def.items())
        if each.outputs and not name.startswith("__")
    ]
    parts = {each.name: rewritten(message.graph_def, each) for each in signatures}
    resources = _Resources(parts.values(), message.meta_info_def.stripped_op_list.op)
    with _session(os.fspath(path)) as session:
        resources.copy(session)
    functions = {each.name: _function(parts[each.name], each, resources) for each in signatures}
    return export(resources, root, functions, version, dtype=dtype)


def _meta_graph(path: str) -> Any:
    """Reads the MetaGraphDef message that servers use."""
    file = f"{path.rstrip('/')}/saved_model.pb"
    if not tf.io.gfile.exists(file):
        raise ValueError(f"`path` must be the directory of a SavedModel. Received: no file {file}.")
    for graph in saved_model(path).meta_graphs:
        if _SERVE in graph.meta_info_def.tags:
            return graph
    raise ValueError(f"The SavedModel must have a graph tagged {_SERVE!r}. Received: {path}.")


@contextlib.contextmanager
def _session(path: str) -> Iterator[tf.compat.v1.Session]:
    """Yields a session that has loaded the model as model servers do."""
    logger = tf.get_logger()
    level = logger.level
    session = tf.compat.v1.Session(graph=tf.Graph())
    with contextlib.closing(session):
        logger.setLevel("ERROR")  # the loader logs that programs should use another one
        try:
            tf.compat.v1.saved_model.load(session, [_SERVE], path)
        finally:
            logger.setLevel(level)
        yield session


def _function(part: Any, signature: Signature, resources: _Resources) -> Any:
    """Returns a signature as a concrete function of the new resources."""
    part = without(part, resources.names)
    used = {each.partition(":")[0] for node in part.node for each in node.input}

    @tf.function(autograph=False)
    def serve(**features: tf.Tensor) -> dict[str, tf.Tensor]:
        given = {tensor: features[key] for key, (tensor, _) in signature.inputs.items()}
        given |= {f"{name}:0": resources.tensor(name) for name in sorted(resources.names & used)}
        taken = {name: each for name, each in given.items() if name.partition(":")[0] in used}
        made = [each for each in signature.outputs.values() if each not in given]
        outputs = tf.graph_util.import_graph_def(part, input_map=taken, return_elements=made)
        given |= dict(zip(made, outputs, strict=True))
        return {key: tf.identity(given[tensor]) for key, tensor in signature.outputs.items()}

    return serve.get_concrete_function(**{key: spec for key, (_, spec) in signature.inputs.items()})


class _Resources(tf.Module):
    """The state that a model's signatures use.

    A copy is keyed by the node that made the original.
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
        """Copies the values from a session that has loaded the model."""
        whole: dict[tuple[Any, ...], Variable] = {}
        rows: dict[tuple[Any, ...], int] = {}
        for name, node in self._nodes.items():
            original = session.graph.get_tensor_by_name(f"{name}:0")
            if node.op in _VARIABLES:
                if node.op == "VarHandleOp":
                    with session.graph.as_default():
                        dtype = tf.as_dtype(node.attr["dtype"].type)
                        original = tf.raw_ops.ReadVariableOp(resource=original, dtype=dtype)
                self._copies[name] = tf.Variable(session.run(original), name=name)
            elif node.op == _VOCABULARY:
                key, value = _dtypes(node)
                with session.graph.as_default():
                    contents = tf.raw_ops.LookupTableExportV2(
                        table_handle=original, Tkeys=key, Tvalues=value
                    )
                pairs = session.run(contents)
                made = tf.lookup.KeyValueTensorInitializer(*pairs, key, value)
                # Each lookup in the graph brings its own default.
                default = "" if value == tf.string else 0
                self._copies[name] = tf.lookup.StaticHashTable(made, default)
            else:
                match = _SHARD.fullmatch(name)
                own = match["table"] if match else name
                # The name, the dtypes and the dim are equal for all shards of a table.
                kind = (own, *_dtypes(node), node.attr["value_shape"].shape.dim[0].size)
                if kind not in whole:
                    whole[kind] = Variable(*kind[1:], name=own.rpartition("/")[2])
                table = self._tables[name] = whole[kind]
                rows[kind] = rows.get(kind, 0) + _copy_rows(original, table, session)
        for kind, table in whole.items():
            if int(table.size()) != rows[kind]:
                raise ValueError(
                    "A key must be in only one shard of a table. Received: "
                    f"table={table.name!r} with {rows[kind]} rows in its shards and "
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
