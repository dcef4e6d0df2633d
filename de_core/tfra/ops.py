"""The ops of `tfra` in models that it exported: loads the library that runs them on our tables."""

from __future__ import annotations

import functools
import pathlib
from typing import Any

import tensorflow as tf

from de_core.base import environment

_OP = "TFRA>CuckooHashTableSize"


@functools.cache
def load_ops() -> Any:
    """Registers the ops of `tfra`, so that TensorFlow loads models that `tfra` exported.

    Call it before `tf.saved_model.load`. Later calls do nothing. The gateway and `de-core convert`
    load the ops by themselves. The ops keep their rows in tables of this library.

    Returns:
        The module of generated op functions, such as `tfra_cuckoo_hash_table_size`.

    Raises:
        ImportError: The library is missing, or `tensorflow_recommenders_addons` is loaded in this
            process: two libraries cannot register the same ops.

    Example:
    >>> ops = load_ops()
    >>> table = ops.tfra_cuckoo_hash_table_of_tensors(
    ...     key_dtype=tf.int64, value_dtype=tf.float32, value_shape=[2]
    ... )
    >>> ops.tfra_cuckoo_hash_table_size(table).numpy().tolist()
    0
    """
    path = environment.tfra_library_path()
    # The gateway may have loaded our library already.
    if _is_registered() and path not in pathlib.Path("/proc/self/maps").read_text("utf-8"):
        raise ImportError(
            "The ops of tfra must not be registered yet. Received: "
            f"{_OP!r} is registered, by tensorflow_recommenders_addons. Use a process that does "
            "not import it."
        )
    if not pathlib.Path(path).is_file():
        raise ImportError(
            f"The library of tfra's ops must lie beside the op library. Received: no file {path}. "
            "Install de_core again."
        )
    return tf.load_op_library(path)


def _is_registered() -> bool:
    graph = tf.compat.v1.GraphDef()
    graph.node.add(name="table", op="Placeholder").attr["dtype"].type = tf.resource.as_datatype_enum
    graph.node.add(name="size", op=_OP).input.append("table")
    with tf.Graph().as_default():
        try:
            tf.graph_util.import_graph_def(graph)
        except (tf.errors.NotFoundError, ValueError):
            return False
    return True
