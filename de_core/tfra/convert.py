"""Converts SavedModels that `tfra` exported: `convert_saved_model`."""

from __future__ import annotations

import contextlib
import importlib
import os
from collections.abc import Iterator, Mapping
from typing import Any

import tensorflow as tf

from de_core.base.types import DTypeLike
from de_core.exports.export import export
from de_core.exports.version import Version
from de_core.tfra.graph import Signature, all_nodes, check, rewritten, without
from de_core.tfra.ops import load_ops
from de_core.tfra.resources import Resources

_SERVE = "serve"


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
    resources = Resources(parts.values(), message.meta_info_def.stripped_op_list.op)
    with _session(os.fspath(path)) as session:
        resources.copy(session)
    functions = {each.name: _function(parts[each.name], each, resources) for each in signatures}
    return export(resources, root, functions, version, dtype=dtype)


def _meta_graph(path: str) -> Any:
    """Reads the MetaGraphDef message that servers use."""
    file = f"{path.rstrip('/')}/saved_model.pb"
    if not tf.io.gfile.exists(file):
        raise ValueError(f"`path` must be the directory of a SavedModel. Received: no file {file}.")
    message = importlib.import_module("tensorflow.core.protobuf.saved_model_pb2").SavedModel()
    with tf.io.gfile.GFile(file, "rb") as opened:
        message.ParseFromString(opened.read())
    for graph in message.meta_graphs:
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


def _function(part: Any, signature: Signature, resources: Resources) -> Any:
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
