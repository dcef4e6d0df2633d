"""A shard whose rows are in a `KVCreator`'s storage, for graphs and eager mode."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import tensorflow as tf

from de_core.base.checks import received
from de_core.base.ops import library
from de_core.base.types import DTypeLike, TensorLike
from de_core.storage import files as stored_files
from de_core.storage.columns import slot_dtype
from de_core.storage.row_store import RowStore
from de_core.storage.rows import StoredRows
from de_core.tables import served_copy
from de_core.tables.initial_rows import InitialRow
from de_core.tables.spec import TableSpec
from de_core.tables.table import Table

_Dtypes = Callable[[TableSpec], list[tf.DType]]


def _none(_: TableSpec) -> list[tf.DType]:
    return []


def _one(dtype: tf.DType) -> _Dtypes:
    return lambda _: [dtype]


#: The method that replaces each op of the library, and the dtypes of its results.
_VERBS: dict[str, tuple[str, _Dtypes]] = {
    "de_table_accum": ("accum", _none),
    "de_table_apply": ("apply", _none),
    "de_table_assign_slot": ("assign_slot", _none),
    "de_table_clear": ("clear", _none),
    "de_table_commit_save": ("nothing", _none),
    "de_table_chains": ("chains", _one(tf.string)),
    "de_table_contains": ("contains", _one(tf.bool)),
    "de_table_drop_slots": ("drop_slots", _none),
    "de_table_ensure_slots": ("ensure_slots", _none),
    "de_table_erase": ("erase", _none),
    "de_table_find": ("find", lambda spec: [spec.value_dtype, tf.bool]),
    "de_table_find_or_insert": ("find_or_insert", lambda spec: [spec.value_dtype, tf.bool]),
    "de_table_find_slot": ("find_slot", lambda spec: [slot_dtype(spec.value_dtype), tf.bool]),
    "de_table_insert_or_assign": ("upsert", _none),
    "de_table_reserve": ("nothing", _none),
    "de_table_shrink_to_fit": ("nothing", _none),
    "de_table_size": ("size", _one(tf.int64)),
    "de_table_slots": ("slots", lambda _: [tf.string, tf.int64]),
    "de_table_take_averages": ("take_averages", _none),
}
_RESTORES = ("de_table_restore", "de_table_restore_keys", "de_table_restore_part")


class StoredTable(Table):
    """A shard whose rows are in a storage. Its resource is an empty table that gives initial rows.

    Its ops are Python functions, so they run in the process that built the graph. An export
    contains a read-only table over a snapshot file, as for any other table.

    Args:
        name: Name, unique among the shards of a graph.
        spec: Dtypes and dim.
        initial: The row that a lookup returns for a key without a row.
        device: The device of the empty table.
        store: The storage.
        metadata: Alternating names and values for the metadata of its snapshot files.

    Raises:
        ValueError: The storage has rows of this name with other dtypes or another dim.
    """

    pools = False
    outlives_its_process = True

    def __init__(
        self,
        name: str,
        spec: TableSpec,
        initial: InitialRow,
        device: str,
        store: RowStore,
        metadata: Sequence[str] = (),
    ) -> None:
        super().__init__(name, spec, initial, device, 0, metadata=metadata)
        self.rows = StoredRows(name, spec, initial, store)
        mine = {
            "key_dtype": "string" if spec.key_dtype == tf.string else "int64",
            "value_dtype": spec.value_dtype.name,
            "dim": spec.dim,
        }
        found = json.loads(store.describe(json.dumps(mine)))
        if found != mine:
            raise ValueError(
                f"A table must have the dtypes and dim of the rows stored under its name {name!r}, "
                f"{found}. Received: {mine}. Use another name, or clear these rows."
            )

    def run(self, op: Callable[..., Any], *inputs: TensorLike, **attributes: Any) -> Any:
        """Runs the replacement of an op of the library on the rows in the storage.

        Args:
            op: An op such as `library.de_table_erase`.
            *inputs: The op's inputs after the handle.
            **attributes: Attributes of the op.

        Raises:
            NotImplementedError: A storage does not support the op.
        """
        if served_copy.is_exporting() and not tf.executing_eagerly():
            return super().run(op, *inputs, **attributes)
        name = op.__name__
        if name == "de_table_save":
            return _called(
                lambda path: stored_files.save(self.rows, path, **attributes), inputs, [tf.string]
            )
        if name in _RESTORES:
            return _called(
                lambda *given: stored_files.restore(self.rows, op, *given, **attributes), inputs, []
            )
        if name not in _VERBS:
            raise NotImplementedError(
                "Metadata of rows, policies and fused pooling need a table in main memory. "
                + received(table=self.name, op=name)
                + " Leave out `kv_creator`."
            )
        method, dtypes = _VERBS[name]
        verb = getattr(self.rows, method)
        for argument in ("Tvalues", "dim"):
            attributes.pop(argument, None)
        return _called(lambda *given: verb(*given, **attributes), inputs, dtypes(self.spec))

    def find(self, keys: tf.Tensor, insert: bool = False) -> tuple[tf.Tensor, tf.Tensor]:
        """Reads rows; see `Table.find`."""
        if served_copy.is_exporting() and not tf.executing_eagerly():
            return super().find(keys, insert)
        op = library.de_table_find_or_insert if insert else library.de_table_find
        values, found = self.run(op, keys)
        values = tf.ensure_shape(values, keys.shape.concatenate([self.spec.dim]))
        return values, tf.ensure_shape(found, keys.shape)

    def export(self, slot: str = "", dtype: DTypeLike | None = None) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns all keys [n] with their values [n, dim] or with one slot."""
        if dtype is None:
            dtype = slot_dtype(self.spec.value_dtype) if slot else self.spec.value_dtype
        keys, values = _called(lambda: self.rows.export(slot), (), [self.spec.key_dtype, dtype])
        return tf.ensure_shape(keys, [None]), tf.ensure_shape(
            values, [None, None if slot else self.spec.dim]
        )

    def export_batches(self) -> Iterator[tuple[tf.Tensor, tf.Tensor]]:
        """Yields keys [n] and values [n, dim] in batches. Eager mode only."""
        return self.rows.batches()

    def stats(self) -> dict[str, Any]:
        """Returns the table's statistics. Eager mode only."""
        return self.rows.stats()

    def _trackable_children(self, save_type: str = "checkpoint", **_: Any) -> dict[str, Any]:
        if save_type == "savedmodel" and not served_copy.is_exporting():
            raise NotImplementedError(
                "A model whose rows are in a storage must be saved by de.export, which copies the "
                f"rows into the SavedModel. {received(table=self.name)}"
            )
        return super()._trackable_children(save_type)


def _called(function: Callable[..., Any], inputs: Any, dtypes: list[tf.DType]) -> Any:
    """Calls a function of eager tensors: at once in eager mode, or when the graph runs.

    Returns:
        A tensor if there is one dtype. Without dtypes, None in eager mode and an op in graphs.
    """
    if tf.executing_eagerly():
        return function(*(tf.convert_to_tensor(each) for each in inputs))
    returned = tf.py_function(function, [*inputs], dtypes)
    return returned[0] if len(dtypes) == 1 else returned
