"""Tables in checkpoints: their snapshot files' bytes, rows and optimizer slots alike.

`tf.train.Checkpoint` and Keras's weight files both store what `snapshots` returns. A checkpoint of
any number of tables can be read into any other number.
"""

from __future__ import annotations

import pathlib
import tempfile
import weakref
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from de_core._ops import library
from de_core.sharded_table import ShardedTable


def snapshots(store: ShardedTable, folder: str | None = None) -> list[tf.Tensor]:
    """Returns each table's snapshot file as a scalar string tensor.

    Args:
        store: The tables.
        folder: Where the files lie meanwhile. In a graph they are written when it runs, so it must
            outlive it; None is for eager mode only.
    """
    if folder is None:
        with tempfile.TemporaryDirectory(prefix="de_core_save_") as temporary:
            return snapshots(store, temporary)
    contents = []
    for index, table in enumerate(store.tables):
        path = str(pathlib.Path(folder) / f"{index}.de")
        written = table.run(library.de_table_save, path)
        with tf.control_dependencies([] if written is None else [written]):
            contents.append(tf.io.read_file(path))
    return contents


def restore(store: ShardedTable, contents: Sequence[Any]) -> None:
    """Replaces the tables' rows, slots and initial rows by those of snapshot files, eagerly.

    Args:
        store: The tables.
        contents: The files' bytes, from any number of tables.

    Raises:
        tf.errors.DataLossError: A file is damaged. That and the following change nothing.
        tf.errors.InvalidArgumentError: A file is of a table of other dtypes or another dim.
    """
    if not contents:
        raise ValueError(
            "The checkpoint must hold the rows of at least one table. "
            f"Received: {len(contents)} of them."
        )
    with tempfile.TemporaryDirectory(prefix="de_core_restore_") as folder:
        paths = []
        for index, content in enumerate(contents):
            paths.append(str(pathlib.Path(folder) / f"{index}.de"))
            tf.io.write_file(paths[-1], content)
        restore_files(store, paths)


def restore_files(store: ShardedTable, paths: Sequence[str]) -> None:
    """Replaces the tables' contents by those of snapshot files.

    Args:
        store: The tables.
        paths: The files, of any number of tables.
    """
    if len(paths) == len(store.tables) == 1:
        store.tables[0].run(library.de_table_restore, paths[0])
        return
    # How the keys were divided then is not known, so each table reads all and keeps its own.
    for index, table in enumerate(store.tables):
        for number, path in enumerate(paths):
            table.run(library.de_table_restore, path, replace=number == 0)
        keys, _ = table.export()
        strangers = tf.not_equal(store.router.shards(keys), index)
        table.run(library.de_table_erase, tf.boolean_mask(keys, strangers))


class TableState(tf.Module):
    """The tables of one Variable as `tf.train.Checkpoint` sees them.

    Args:
        store: The tables.
    """

    def __init__(self, store: ShardedTable) -> None:
        super().__init__()
        self._store = store
        self._folder: str | None = None

    def _serialize_to_tensors(self) -> dict[str, tf.Tensor]:
        if not tf.executing_eagerly() and self._folder is None:
            folder = tempfile.TemporaryDirectory(prefix="de_core_save_")
            weakref.finalize(self, folder.cleanup)
            self._folder = folder.name
        folder_name = None if tf.executing_eagerly() else self._folder
        return {"snapshots": tf.stack(snapshots(self._store, folder_name))}

    def _restore_from_tensors(self, restored_tensors: dict[str, tf.Tensor]) -> None:
        restore(self._store, tf.unstack(restored_tensors["snapshots"]))

    def _trackable_children(self, save_type: str = "checkpoint", **_: Any) -> dict[str, Any]:
        del save_type
        return {}
