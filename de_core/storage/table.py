"""A shard whose rows are in a `KVCreator`'s storage, for graphs and eager mode."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import tensorflow as tf

from de_core.base.checks import received
from de_core.base.ops import library
from de_core.base.types import DTypeLike, TensorLike
from de_core.storage.row_bytes import (
    columns_in,
    columns_of,
    encoded_keys,
    encoded_rows,
    ensure,
    find_slot,
    slot_dtype,
)
from de_core.storage.row_store import RowStore
from de_core.storage.rows import StoredRows
from de_core.tables import served_copy
from de_core.tables.initial_rows import InitialRow
from de_core.tables.policy import FROZEN, is_reserved
from de_core.tables.spec import TableSpec
from de_core.tables.table import Table

#: The ops that are methods of `StoredRows`, and the dtypes of their results.
_VERBS: dict[str, Callable[[TableSpec], list[tf.DType]]] = {
    **dict.fromkeys(("accum", "apply", "assign_slot", "clear", "commit_save"), lambda _: []),
    **dict.fromkeys(("drop_slots", "ensure_slots", "erase", "insert_or_assign"), lambda _: []),
    **dict.fromkeys(("reserve", "shrink_to_fit", "take_averages"), lambda _: []),
    **dict.fromkeys(("find", "find_or_insert"), lambda spec: [spec.value_dtype, tf.bool]),
    "chains": lambda _: [tf.string],
    "contains": lambda _: [tf.bool],
    "find_slot": lambda spec: [slot_dtype(spec.value_dtype), tf.bool],
    "size": lambda _: [tf.int64],
    "slots": lambda _: [tf.string, tf.int64],
}
#: Counters of a table in memory that a storage does not have.
_NOT_COUNTED = (
    "evicted",
    "expired",
    "refused",
    "lookups",
    "updates",
    "lookup_nanoseconds",
    "update_nanoseconds",
    "gradients_read",
    "gradient_norms",
)
_RESTORES = ("de_table_restore", "de_table_restore_keys")


class StoredTable(Table):
    """A shard whose rows are in a storage. Its resource is an empty table that gives initial rows.

    Its ops are Python functions, so they run in the process that built the graph. An export
    contains a read-only table over a snapshot file, as for any other table.

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

        Raises:
            NotImplementedError: A storage does not support the op.
        """
        if served_copy.is_exporting() and not tf.executing_eagerly():
            return super().run(op, *inputs, **attributes)
        name = op.__name__
        if name == "de_table_save":
            return _called(lambda path: _save(self.rows, path, **attributes), inputs, [tf.string])
        if name in _RESTORES:
            return _called(lambda *given: _restore(self.rows, op, *given, **attributes), inputs, [])
        verb = name.removeprefix("de_table_")
        if verb not in _VERBS:
            raise NotImplementedError(
                "Metadata of rows, policies and fused pooling need a table in main memory. "
                + received(table=self.name, op=name)
                + " Leave out `kv_creator`."
            )
        method = getattr(self.rows, verb)
        for argument in ("Tvalues", "dim"):
            attributes.pop(argument, None)
        return _called(lambda *given: method(*given, **attributes), inputs, _VERBS[verb](self.spec))

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
        """Returns the table's statistics, as far as the storage knows them. Eager mode only."""
        parts = ("index", "rows", "slots", "strings", "policy", "free")
        return {
            **dict.fromkeys(_NOT_COUNTED, 0),
            "rows": self.rows.store.size(),
            "hits": self.rows.hits,
            "misses": self.rows.misses,
            "load_factor": 0.0,
            "probe_lengths": [],
            "bytes": dict.fromkeys(parts, 0),
        }

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


def _save(rows: StoredRows, path: tf.Tensor, **attributes: Any) -> tf.Tensor:
    """Writes all rows to a snapshot file and returns its report.

    Args:
        rows: The rows to save. Other processes may write meanwhile: each row is consistent, but the
            file may mix rows of different moments.
        path: A scalar string.
        **attributes: Attributes of `library.de_table_save`.

    Raises:
        NotImplementedError: The attributes request a delta.
    """
    if attributes.get("delta"):
        raise NotImplementedError(
            "A table that saves deltas must be in main memory. Received: a delta of table "
            f"{rows.name!r}, whose rows are in a storage. Save the whole table."
        )
    table = rows.new_table()
    known = [] if attributes.get("values_only") else list(rows.known().values())
    ensure(table, known)
    names = [rows.store.VALUE, *(column.text for column in known)]
    for keys in rows.store.scan():
        rows.load(table, keys, known, rows.store.read_together(names, keys))
    return table.run(library.de_table_save, path, **attributes)


def _restore(rows: StoredRows, op: Any, *inputs: Any, replace: bool, **attributes: Any) -> None:
    """Reads and checks snapshot files in memory, then writes their rows to the storage.

    Args:
        rows: The rows in the storage.
        op: One of `_RESTORES`.
        *inputs: The op's inputs: the files first.
        replace: True to remove rows that are not in the files.
        **attributes: Further attributes of the op.

    Raises:
        NotImplementedError: The files hold frozen rows.
    """
    table = rows.new_table()
    # Read the slots' initial values and the initial row of unknown keys.
    blank = rows.new_table()
    none = tf.zeros([0], rows.spec.key_dtype)
    options = {name: attributes[name] for name in ("slots", "convert")}
    blank.run(library.de_table_restore_keys, inputs[0], none, replace=True, **options)
    table.run(op, *inputs, replace=True, **attributes)
    slots = [name.decode() for name in table.run(library.de_table_slots)[0].numpy().tolist()]
    if FROZEN in slots:
        raise NotImplementedError(
            "Frozen rows need a table in main memory, not in a storage. "
            f"{received(table=rows.name)} Restore with slots=False, or `unfreeze` before you save."
        )
    # Skip the columns of the library's own policies, because a storage has no policies.
    found = [each for each in columns_of(blank, "") if not is_reserved(each.slot)]
    if replace:
        rows.adopt(blank)
        rows.store.clear()
    else:  # Overwrite the slots that the file lacks too: they are of the rows that it replaces.
        there = columns_in(rows.store)
        ensure(table, there.values())
        slots.extend(there)
    rows.remember(found)
    known = rows.known()
    columns = [known[slot] for slot in dict.fromkeys(slots) if slot in known]
    for keys, values in table.export_batches():
        data = {rows.store.VALUE: encoded_rows(values)}
        for column in columns:
            data[column.text] = encoded_rows(find_slot(table, keys, column))
        rows.store.write(encoded_keys(keys), data)
