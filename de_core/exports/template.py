"""A model's SavedModel without the rows of its tables: functions, weights, vocabularies."""

from __future__ import annotations

import functools
import logging
import pathlib
import shutil
from collections.abc import Iterable, Mapping
from typing import Any

import tensorflow as tf

from de_core.base.ops import library
from de_core.base.types import InputSpecs, Model, Signatures
from de_core.checkpoint.targets import by_name
from de_core.exports.signatures import SERVING_DEFAULT, serving_functions
from de_core.tables.served_copy import FrozenTable, deferred_writes, put_together
from de_core.tables.sharded import ShardedTable, tables_behind
from de_core.tables.table import Table
from de_core.variable.anchor import table_of

LOOKUP_PREFIX = "de_lookup/"
STATS = "de_stats"


class Template:
    """The parts of a model that an export writes, apart from the rows.

    Args:
        model: As for `de.export`.
        signatures: As for `de.export`.
        inputs: As for `de.export`.

    Raises:
        TypeError: An argument has a wrong type.
        ValueError: No signature can be made, or no signature uses a table.
    """

    def __init__(self, model: Model, signatures: Signatures, inputs: InputSpecs) -> None:
        #: The model's own signatures, concrete functions by name.
        with deferred_writes():
            self.functions = serving_functions(model, signatures, inputs)
        tables = tables_behind(
            [each for function in self.functions.values() for each in function.captured_inputs]
        )
        if not tables:
            raise ValueError(
                "The signatures must use a dynamic table; for a model without one use "
                f"tf.saved_model.save. Received: signatures={sorted(self.functions)}."
            )
        for table in tables:
            table.in_saved_model()  # refuses a table that is divided among workers
        #: The tables, by name in the SavedModel.
        self.names = by_name((table.name, table) for table in tables)
        self._shards = [shard for table in tables for shard in table.tables]
        self.module = tf.Module()
        # Attributes, because TensorFlow's bookkeeping of a list took a tenth of a load.
        for number, shard in enumerate(self._shards):
            setattr(self.module, f"table_{number}", shard)
        used = _with_shared_anchors(others_used(model, self.functions.values(), self._shards))
        self.module.used_variables = [each for each in used if isinstance(each, tf.Variable)]
        self.module.used_resources = [each for each in used if not isinstance(each, tf.Variable)]
        names = [name for name, table in self.names.items() for _ in table.tables]
        handles = [shard.resource_handle for shard in self._shards]

        @tf.function(input_signature=[])
        def stats() -> dict[str, tf.Tensor]:
            return {"stats": library.de_serving_stats(handles, tables=names)}

        added = {LOOKUP_PREFIX + name: lookup_of(table) for name, table in self.names.items()}
        added[STATS] = stats
        if reserved := sorted(added.keys() & self.functions.keys()):
            raise ValueError(
                f"`signatures` must not have names that an export adds. Received: {reserved}."
            )
        self._signatures = {**self.functions, **added}

    @property
    def main_signature(self) -> str:
        """Name of the signature that sample requests go to: `serving_default`, or the first."""
        return SERVING_DEFAULT if SERVING_DEFAULT in self.functions else min(self.functions)

    def save(self, folder: pathlib.Path, suffix: str) -> dict[Table, FrozenTable]:
        """Writes the SavedModel. The assets of its tables are empty files.

        Returns:
            For each shard, the `FrozenTable` in the SavedModel. Its `file` has the asset's name.
        """
        with deferred_writes(suffix):
            copies = {shard: shard.frozen_table(new=True) for shard in self._shards}
            put_together(copies.values())
            write_saved_model(self.module, folder, self._signatures)
        for copy in copies.values():  # TensorFlow has copied the empty files
            shutil.rmtree(copy.file.parent)
        return copies


def write_saved_model(
    module: tf.Module, folder: pathlib.Path, signatures: Mapping[str, Any]
) -> None:
    """Writes a SavedModel into a temporary folder. Keeps the folder's name out of the log."""

    def keeps(record: logging.LogRecord) -> bool:
        return "Assets written to" not in record.getMessage()

    logger = tf.get_logger()
    logger.addFilter(keeps)
    try:
        tf.saved_model.save(module, str(folder), signatures=signatures)
    finally:
        logger.removeFilter(keeps)


def lookup_of(table: ShardedTable) -> Any:
    """Returns the signature that looks up ids in one table."""
    ids = tf.TensorSpec([None], table.spec.key_dtype, name="ids")

    @tf.function(input_signature=[ids], autograph=False)
    def lookup(ids: tf.Tensor) -> dict[str, tf.Tensor]:
        embeddings, found = table.find(ids)
        return {"embeddings": embeddings, "found": found}

    return lookup


def _with_shared_anchors(used: Iterable[Any]) -> list[Any]:
    """Replaces anchors by one variable for each shape: an anchor would cost as much as a table."""
    kept: list[Any] = []
    anchors: dict[Any, list[tf.Variable]] = {}
    for each in used:
        if table_of(each) is None or isinstance(each, tf.distribute.DistributedValues):
            kept.append(each)
        else:
            anchors.setdefault((each.dtype, each.trainable, *each.shape), []).append(each)
    for first, *others in anchors.values():
        with tf.init_scope(), tf.device("CPU"):
            shared = tf.Variable(tf.zeros(first.shape, first.dtype), first.trainable, name="anchor")
        shared._export_to_saved_model_graph = functools.partial(
            _export_anchors, shared, [first, *others]
        )
        kept.append(shared)
    return kept


def _export_anchors(
    shared: tf.Variable,
    anchors: Iterable[tf.Variable],
    object_map: Any,
    tensor_map: Any,
    **options: Any,
) -> list[tf.Tensor]:
    """Makes one variable of a SavedModel stand for several anchors."""
    kind: Any = type(shared)
    handles = kind._export_to_saved_model_graph(
        shared, object_map=object_map, tensor_map=tensor_map, **options
    )
    for anchor in anchors:
        object_map[anchor] = object_map[shared]
        tensor_map[anchor.handle] = tensor_map[shared.handle]
        handles.append(anchor.handle)
    return list(handles)


class _SavedModelView(tf.train.TrackableView):
    """Lists the objects that TensorFlow reaches when it writes a SavedModel."""

    @classmethod
    def children(cls, obj: Any, save_type: str = "savedmodel", **kwargs: Any) -> Any:
        return super().children(obj, save_type, **{"cache": {}, **kwargs})


def others_used(model: Any, functions: Iterable[Any], tables: Iterable[Any]) -> list[Any]:
    """Returns what functions use besides tables: variables, and resources such as vocabularies."""
    used: list[Any] = []
    captured: dict[int, tf.Tensor] = {}
    for function in functions:
        used += function.variables
        captured |= {id(each): each for each in function.captured_inputs}
    # Functions may capture only the handle of a variable.
    known = [*(each.handle for each in used), *(each.resource_handle for each in tables)]
    for handle in known:
        captured.pop(id(handle), None)
    if tf.resource not in [each.dtype for each in captured.values()]:
        return used
    with deferred_writes():
        for each in _SavedModelView(model).descendants():
            if isinstance(each, tf.Variable):
                handle = each.handle
            elif isinstance(each, tf.saved_model.experimental.TrackableResource):
                handle = each.resource_handle
            else:
                continue
            if id(handle) in captured:
                used.append(each)
    return used
