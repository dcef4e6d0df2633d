"""Saves and restores the rows of a storage as snapshot files. The rows pass through memory."""

from __future__ import annotations

import json
from typing import Any

import tensorflow as tf

from de_core.base.ops import library
from de_core.storage.columns import columns_of, ensure, find_slot
from de_core.storage.row_bytes import encoded_keys, encoded_rows
from de_core.storage.rows import StoredRows


def save(rows: StoredRows, path: tf.Tensor, **attributes: Any) -> tf.Tensor:
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
    table = rows.memory.new_table()
    known = [] if attributes.get("values_only") else list(rows.known().values())
    for column in known:
        ensure(table, column)
    names = [rows.store.VALUE, *(column.text for column in known)]
    for keys in rows.store.scan():
        rows.memory.load(table, keys, known, rows.store.read(names, keys))
    return table.run(library.de_table_save, path, **attributes)


def restore(rows: StoredRows, op: Any, *inputs: Any, **attributes: Any) -> None:
    """Reads and checks snapshot files in memory, then writes their rows to the storage.

    Args:
        rows: The rows to restore.
        op: One of the restore ops.
        *inputs: Inputs of the op.
        **attributes: Attributes of the op.

    Raises:
        NotImplementedError: The caller selects rows by a function, not by keys, and the file is a
            delta that removes rows.
    """
    table = rows.memory.new_table()
    if "replace" in attributes:
        _note_layout(rows, inputs[0], attributes)
    else:
        _require_no_tombstones(rows, inputs[0])
    replace = attributes.get("replace", False)
    attributes.update({name: True for name in ("replace",) if name in attributes})
    table.run(op, *inputs, **attributes)
    if replace:
        rows.store.clear()
    known = rows.known()
    slots = [name.decode() for name in table.run(library.de_table_slots)[0].numpy().tolist()]
    columns = [known[slot] for slot in slots if slot in known]
    for keys, values in table.export_batches():
        data = {rows.store.VALUE: encoded_rows(values)}
        for column in columns:
            data[column.text] = encoded_rows(find_slot(table, keys, column))
        rows.store.write(encoded_keys(keys), data)


def _note_layout(rows: StoredRows, files: tf.Tensor, attributes: dict[str, Any]) -> None:
    """Reads the slots' initial values and the initial row of unknown keys from files."""
    blank = rows.memory.new_table()
    blank.run(
        library.de_table_restore_keys,
        files,
        tf.zeros([0], rows.spec.key_dtype),
        replace=True,
        slots=attributes["slots"],
        convert=attributes["convert"],
    )
    # Skip the columns of the library's own policies, because a storage has no policies.
    rows.remember(each for each in columns_of(blank, "") if not each.slot.startswith("de/"))
    if attributes["replace"]:
        rows.memory.adopt(blank)


def _require_no_tombstones(rows: StoredRows, path: tf.Tensor) -> None:
    if json.loads(library.de_snapshot_info(path, verify=False).numpy())["tombstones"]:
        raise NotImplementedError(
            "A function that selects rows of a delta must select them for a table in main memory. "
            f"Received: table {rows.name!r}, whose rows are in a storage. Select rows by keys."
        )
