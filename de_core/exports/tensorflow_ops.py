"""Writes tables as TensorFlow's own ops, for model servers that cannot load this library's ops."""

from __future__ import annotations

import pathlib
import re
import tempfile
import uuid
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from de_core.base.checks import received
from de_core.base.ops import library
from de_core.exports import served_rows
from de_core.exports.served_rows import ServedRows
from de_core.exports.signatures import own_function, serving_functions
from de_core.exports.template import (
    LOOKUP_PREFIX,
    Template,
    lookup_of,
    others_used,
    write_saved_model,
)
from de_core.snapshot.file import SnapshotFile, about
from de_core.tables import served_copy
from de_core.tables.sharded import ShardedTable
from de_core.tables.spec import TableSpec
from de_core.tables.table import Table

#: Kinds of initial rows that are the same for each key.
_ONE_ROW = ("zeros", "constant", "row")


class _Index(tf.saved_model.experimental.TrackableResource):
    """TensorFlow's hash table from a key to its row number. It reads its keys from an asset.

    Args:
        keys: int64 or bytes objects [n], distinct.
        folder: A folder for the asset, which must exist until the SavedModel is written.
        missing: The number of a key that is not in `keys`.
    """

    def __init__(self, keys: np.ndarray[Any, Any], folder: pathlib.Path, missing: int) -> None:
        super().__init__(device="")
        self.key_dtype = tf.string if keys.dtype == object else tf.int64
        self._missing = missing
        # Unique per SavedModel: versions that one process serves never share a table.
        self._shared_name = f"keys_{uuid.uuid4().hex}"
        if not len(keys):  # TensorFlow refuses none; the number of the first is `missing`
            keys = np.array([b""], object) if keys.dtype == object else np.zeros([1], np.int64)
        file = folder / self._shared_name
        tensor = tf.constant(keys, self.key_dtype)
        file.write_bytes(tf.io.serialize_tensor(tensor).numpy())
        self.asset = tf.saved_model.Asset(str(file))
        with tf.init_scope():
            _ = self.resource_handle  # made at its first use, and not in a function

    def find(self, keys: tf.Tensor) -> tf.Tensor:
        missing = tf.constant(self._missing, tf.int64)
        return tf.raw_ops.LookupTableFindV2(
            table_handle=self.resource_handle, keys=keys, default_value=missing
        )

    def _create_resource(self) -> tf.Tensor:
        return tf.raw_ops.HashTableV2(
            shared_name=self._shared_name, key_dtype=self.key_dtype, value_dtype=tf.int64
        )

    def _initialize(self) -> None:
        keys = tf.io.parse_tensor(tf.io.read_file(self.asset.asset_path), self.key_dtype)
        numbers = tf.range(tf.size(keys, tf.int64))
        tf.raw_ops.LookupTableImportV2(table_handle=self.resource_handle, keys=keys, values=numbers)


class PlainTable(tf.Module):
    """Stands for the shards of a table while functions are traced for the SavedModel.

    Args:
        name: The table's name.
        spec: The table's spec.
        keys: int64 or bytes objects [n].
        rows: [n + 1, dim] in the storage format. `unknown` replaces the last one.
        unknown: The row [1, dim] of unknown ids, of the value dtype; None to fail the lookup.
        folder: A folder for the keys' asset.
    """

    #: As `Table.pools` and `Table.records`: lookups use TensorFlow's ops, and have no gradients.
    pools = records = False

    def __init__(
        self,
        name: str,
        spec: TableSpec,
        keys: np.ndarray[Any, Any],
        rows: tf.Tensor,
        unknown: np.ndarray[Any, Any] | None,
        folder: pathlib.Path,
    ) -> None:
        super().__init__()
        self._table_name, self._spec, self._unknown = name, spec, unknown
        self._count = len(keys)
        self.index = _Index(keys, folder, self._count)
        self.keys = self.index.asset  # a module's attributes are saved with it, a resource's not
        self.stored = tf.Variable(rows, trainable=False, name="rows")

    def find(self, keys: tf.Tensor, insert: bool = False) -> tuple[tf.Tensor, tf.Tensor]:
        """Reads rows; see `Table.find`."""
        if insert:
            self.run(library.de_table_find_or_insert)
        numbers = self.index.find(tf.cast(keys, self.index.key_dtype))
        numbers.set_shape(keys.shape)
        found = tf.not_equal(numbers, self._count)
        if self._unknown is None:
            is_missing = tf.reshape(tf.logical_not(found), [-1])
            unknown = tf.boolean_mask(tf.reshape(keys, [-1]), is_missing)
            message = f"every key must be in the table {self._table_name}. Received: keys="
            with tf.control_dependencies([tf.Assert(tf.reduce_all(found), [message, unknown])]):
                numbers = tf.identity(numbers)
        rows = tf.cast(tf.gather(self.stored, numbers), self._spec.value_dtype)
        if self._unknown is not None:
            unknown = tf.constant(self._unknown[0], self._spec.value_dtype)
            rows = tf.where(found[..., tf.newaxis], rows, unknown)
        return rows, found

    def run(self, op: Callable[..., Any], *_: Any, **__: Any) -> Any:
        """Refuses all other operations of a table."""
        raise NotImplementedError(
            "A signature of TensorFlow's own ops can only look up rows. "
            f"{received(table=self._table_name, op=op.__name__)} "
            "Leave out `ops`, or change the signature."
        )


def save(
    folder: pathlib.Path,
    template: Template,
    rows: Mapping[str, ServedRows],
    given: tuple[Any, Any, Any],
) -> dict[str, Any]:
    """Writes a SavedModel of TensorFlow's own ops.

    Args:
        folder: An empty directory.
        template: The SavedModel with this library's ops, whose tables and names it has.
        rows: How to store each table, by name.
        given: The model, signatures and inputs of `de.export`.

    Returns:
        The report of each table.

    Raises:
        ValueError: A format or policy needs this library's ops, or a function was traced before.
    """
    model, signatures, inputs = given
    if signatures is inputs is None:
        signatures = own_function(model)
    plain: dict[str, PlainTable] = {}
    reports: dict[str, Any] = {}
    # The folder is beside the version's files, where servers of a table can write.
    with tempfile.TemporaryDirectory(prefix="rows-", dir=folder) as work, tf.device("/CPU:0"):
        for name, table in template.names.items():
            plain[name], reports[name] = _plain_table(table, rows[name], pathlib.Path(work))
        tables = template.names.values()
        with served_copy.standing_for(dict(zip(tables, plain.values(), strict=True))):
            functions = serving_functions(model, _traced_anew(signatures), inputs)
            lookups = {
                LOOKUP_PREFIX + name: lookup_of(table).get_concrete_function()
                for name, table in template.names.items()
            }
        for name, function in {**functions, **lookups}.items():
            graph = function.graph.as_graph_def()
            nodes = [*graph.node, *(n for each in graph.library.function for n in each.node_def)]
            ops = sorted({node.op for node in nodes if node.op.startswith("De")})
            # The module of our ops has their names in snake case.
            snakes = {op: re.sub("(?<=[a-z])(?=[A-Z])", "_", op).lower() for op in ops}
            ours = [op for op in ops if hasattr(library, snakes[op])]
            if ours:
                raise ValueError(
                    "With ops='tensorflow' a signature must only look up rows, and must not call "
                    "a tf.function that was called before with the live table: call its Python "
                    f"function. Received: signature {name!r} with the ops {ours}."
                )
        module = tf.Module()
        module.tables = list(plain.values())
        module.used = others_used(model, functions.values(), [each.index for each in module.tables])
        write_saved_model(module, folder, {**functions, **lookups})
    return reports


def _plain_table(
    table: ShardedTable, rows: ServedRows, folder: pathlib.Path
) -> tuple[PlainTable, dict[str, Any]]:
    """Reads the rows from the files that an export with our ops would have."""
    if rows.dtype == "int8":
        raise ValueError(
            "`dtype` must be float32, float16, bfloat16 or None with ops='tensorflow'. "
            f"Received: dtype='int8' for table {table.name!r}."
        )
    stored = table.spec.value_dtype if rows.dtype is None else tf.as_dtype(rows.dtype)
    paths = [str(folder / f"{number}.de") for number in range(len(table.tables))]
    reports = rows.write(table, paths)
    unknown = _row_of_unknown_ids(table, rows, paths[0])
    parts = [part for path in paths for part in SnapshotFile(path).batches()]
    for path in paths:
        pathlib.Path(path).unlink()
    is_text = table.spec.key_dtype == tf.string
    none = np.zeros([0], object if is_text else np.int64)
    keys = np.concatenate([none, *(part.keys for part in parts)])
    # `unknown` replaces the last row. It has the value dtype, which the storage format may round.
    padding = tf.zeros([1, table.spec.dim], stored)
    values = tf.concat([*(tf.cast(part.values, stored) for part in parts), padding], 0)
    made = PlainTable(table.name, table.spec, keys, values, unknown, folder)
    return made, served_rows.total(reports)


def _row_of_unknown_ids(
    table: ShardedTable, rows: ServedRows, path: str
) -> np.ndarray[Any, Any] | None:
    """Returns the row [1, dim] that an unknown id reads; None if it is an error.

    The file at `path` holds the live initial row: a restore replaces the one of the constructor.
    """
    if isinstance(rows.oov, str) and rows.oov == "error":
        return None
    spec = table.spec
    dtype = spec.value_dtype.as_numpy_dtype
    row: Any = 0
    if isinstance(rows.oov, str) and rows.oov == "initial":
        kind = about(path)["initializer"]["kind"]
        if kind not in _ONE_ROW:
            raise ValueError(
                "`oov` must be 'zeros', 'error', a number or a row with ops='tensorflow', because "
                "TensorFlow's ops cannot draw the initial row of an unknown id. Received: "
                f"oov='initial' for table {table.name!r} with {kind} initial rows."
            )
        blank = Table("blank", spec, table.tables[0].initial, "/CPU:0", 0)
        keys = tf.zeros([1], spec.key_dtype)
        blank.run(library.de_table_restore_keys, [path], keys[:0], convert=True)
        return blank.find(keys)[0].numpy()
    elif not isinstance(rows.oov, str):
        row = rows.oov
    if spec.value_dtype == tf.string:
        return np.array([[row or b""] * spec.dim], object)
    row = np.asarray(row)
    if spec.value_dtype.size == 2 and row.dtype == np.float64:
        row = row.astype(np.float32)  # as the op rounds
    return np.broadcast_to(row, [1, spec.dim]).astype(dtype)


def _traced_anew(signatures: Any) -> Any:
    """Returns functions that have no trace yet: a trace holds the tables that it was made with."""
    if isinstance(signatures, dict):
        return {name: _traced_anew(each) for name, each in signatures.items()}
    if isinstance(signatures, tf.types.experimental.ConcreteFunction):
        raise ValueError(
            "`signatures` must be functions that can be traced once more with ops='tensorflow': "
            f"pass the tf.function. {received(signatures=signatures)}"
        )
    if isinstance(signatures, tf.types.experimental.PolymorphicFunction):
        return tf.function(signatures.python_function, input_signature=signatures.input_signature)
    return signatures
