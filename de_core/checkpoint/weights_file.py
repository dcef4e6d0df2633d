"""Stores the snapshot files' bytes inside a one-file checkpoint, such as a Keras weights file.

tf_keras's `load_weights` also takes the directory of a SavedModel. It restores the checkpoint of
the SavedModel's variables, which holds no rows. They are in the SavedModel's assets.
"""

from __future__ import annotations

import pathlib
import tempfile
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from de_core.base import paths
from de_core.checkpoint.sources import tables_in
from de_core.snapshot import table_files
from de_core.tables.sharded import ShardedTable

_VARIABLES = "variables"
# Bytes per piece of a shard in a weights file. Only one piece is in memory at a time.
_PIECE_BYTES = 16 << 20


def files(table: ShardedTable, folder: str) -> list[tf.Tensor]:
    """Returns the bytes of each shard's snapshot file as a scalar string tensor.

    A graph writes the files when it runs, so `folder` must live as long as the graph may run.
    """
    targets = [str(pathlib.Path(folder) / f"{index}.de") for index in range(len(table.tables))]
    contents = []
    for path, report in zip(targets, table_files.write(table, targets), strict=True):
        with tf.control_dependencies([report]):
            contents.append(tf.io.read_file(path))
    return contents


def restore(table: ShardedTable, contents: Sequence[tf.Tensor]) -> None:
    """Replaces a table's rows by the rows in snapshot files.

    Raises:
        tf.errors.DataLossError: A file is damaged. The table is unchanged.
        tf.errors.InvalidArgumentError: A file's table has other dtypes or another dim. The table is
            unchanged.
    """
    with tempfile.TemporaryDirectory(prefix="de_core_restore_") as folder:
        files = [str(pathlib.Path(folder) / f"{index}.de") for index in range(len(contents))]
        for path, content in zip(files, contents, strict=True):
            tf.io.write_file(path, content)
        table_files.restore(table, _some(files))


def restore_saved_model(table: ShardedTable, prefix: str) -> None:
    """Restores a table's rows if the checkpoint is part of a SavedModel; otherwise does nothing.

    Raises:
        ValueError: The SavedModel has no table of this name, or a graph is being built.
        tf.errors.OpError: A file does not fit or is damaged.
    """
    folder, name = paths.folder_of(prefix), paths.base_name(prefix)
    directory = paths.folder_of(folder)
    if (name, paths.base_name(folder)) != (_VARIABLES, _VARIABLES):
        return
    if not tf.io.gfile.exists(paths.join(directory, "saved_model.pb")):
        return
    found = tables_in(directory)
    if table.name not in found or not tf.executing_eagerly():
        raise ValueError(
            "Rows of a SavedModel must be loaded in eager mode, into a table with the saved name. "
            f"Received: table={table.name!r} for the tables {sorted(found)} of {directory!r}, "
            f"executing_eagerly={tf.executing_eagerly()}. Give the layer the saved name, or use "
            f"de.warm_start(directory, [table], {{{table.name!r}: saved name}})."
        )
    table_files.restore(table, found[table.name], slots=False)


def write_pieces(table: ShardedTable, target: Any) -> None:
    """Writes a table into a Keras weights file, piece by piece.

    Args:
        table: The table.
        target: The dict of arrays that Keras passes to `save_own_variables`.
    """
    with tempfile.TemporaryDirectory(prefix="de_core_save_") as folder:
        files = [pathlib.Path(folder) / f"{index}.de" for index in range(len(table.tables))]
        table_files.write(table, [str(path) for path in files])
        for index, path in enumerate(files):
            with path.open("rb") as file:
                number = 0
                while piece := file.read(_PIECE_BYTES):
                    target[f"table_{index}_piece_{number}"] = np.frombuffer(piece, np.uint8)
                    number += 1
            path.unlink()


def read_pieces(table: ShardedTable, source: Any) -> None:
    """Reads a table that `write_pieces` wrote. The number of shards may differ.

    Args:
        table: The table.
        source: The dict of arrays that Keras passes to `load_own_variables`.
    """
    places = sorted(tuple(int(part) for part in key.split("_")[1::2]) for key in source.keys())  # noqa: SIM118
    with tempfile.TemporaryDirectory(prefix="de_core_restore_") as folder:
        files = {index: pathlib.Path(folder) / f"{index}.de" for index, _ in places}
        for index, number in places:
            with files[index].open("ab") as file:
                file.write(np.asarray(source[f"table_{index}_piece_{number}"]).data)
        table_files.restore(table, _some([str(path) for path in files.values()]))


def _some(files: Sequence[str]) -> Sequence[str]:
    if not files:
        raise ValueError(
            f"The checkpoint must hold the rows of at least one shard. Received: {len(files)}."
        )
    return files
