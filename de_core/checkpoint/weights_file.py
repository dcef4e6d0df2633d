"""Stores the snapshot files' bytes inside a one-file checkpoint, such as a Keras weights file."""

from __future__ import annotations

import pathlib
import tempfile
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from de_core.snapshot import table_files
from de_core.tables.sharded import ShardedTable

# Bytes per piece of a shard in a weights file. Only one piece is in memory at a time.
_PIECE_BYTES = 16 << 20


def files(table: ShardedTable, folder: str) -> list[tf.Tensor]:
    """Returns the bytes of each shard's snapshot file as a scalar string tensor.

    Args:
        table: The table.
        folder: Folder for the temporary files. A graph writes them when it runs.
    """
    paths = [str(pathlib.Path(folder) / f"{index}.de") for index in range(len(table.tables))]
    contents = []
    for path, report in zip(paths, table_files.write(table, paths), strict=True):
        with tf.control_dependencies([report]):
            contents.append(tf.io.read_file(path))
    return contents


def restore(table: ShardedTable, contents: Sequence[tf.Tensor]) -> None:
    """Replaces a table's rows by the rows in snapshot files.

    Args:
        table: The table.
        contents: The files' bytes, one scalar per shard of the saved table.

    Returns:
        In a graph, an op.

    Raises:
        tf.errors.DataLossError: A file is damaged. The table is unchanged.
        tf.errors.InvalidArgumentError: A file's table has other dtypes or another dim. The table is
            unchanged.
    """
    with tempfile.TemporaryDirectory(prefix="de_core_restore_") as folder:
        paths = []
        for index, content in enumerate(contents):
            paths.append(str(pathlib.Path(folder) / f"{index}.de"))
            tf.io.write_file(paths[-1], content)
        table_files.restore(table, _some(paths))
    return None


def write_pieces(table: ShardedTable, target: Any) -> None:
    """Writes a table into a Keras weights file, piece by piece.

    Args:
        table: The table.
        target: The dict of arrays that Keras passes to `save_own_variables`.
    """
    with tempfile.TemporaryDirectory(prefix="de_core_save_") as folder:
        paths = [pathlib.Path(folder) / f"{index}.de" for index in range(len(table.tables))]
        table_files.write(table, [str(path) for path in paths])
        for index, path in enumerate(paths):
            for number, piece in enumerate(_pieces(path)):
                target[f"table_{index}_piece_{number}"] = piece
            path.unlink()


def read_pieces(table: ShardedTable, source: Any) -> None:
    """Reads a table that `write_pieces` wrote. The number of shards may differ.

    Args:
        table: The table.
        source: The dict of arrays that Keras passes to `load_own_variables`.
    """
    places = sorted(tuple(int(part) for part in key.split("_")[1::2]) for key in source.keys())  # noqa: SIM118
    with tempfile.TemporaryDirectory(prefix="de_core_restore_") as folder:
        paths = {index: pathlib.Path(folder) / f"{index}.de" for index, _ in places}
        for index, number in places:
            with paths[index].open("ab") as file:
                file.write(np.asarray(source[f"table_{index}_piece_{number}"]).data)
        table_files.restore(table, _some([str(path) for path in paths.values()]))


def _pieces(path: pathlib.Path) -> Iterator[np.ndarray[Any, Any]]:
    with path.open("rb") as file:
        while piece := file.read(_PIECE_BYTES):
            yield np.frombuffer(piece, np.uint8)


def _some(paths: Sequence[str]) -> Sequence[str]:
    if not paths:
        raise ValueError(
            f"The checkpoint must hold the rows of at least one shard. Received: {len(paths)}."
        )
    return paths
