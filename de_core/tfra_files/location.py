"""Finds the files that a path means."""

from __future__ import annotations

import tensorflow as tf

from de_core.base import paths
from de_core.tfra_files import key_value_files
from de_core.tfra_files.contents import SavedTable, flat

_BESIDE = "TFRADynamicEmbedding"
_INDEX = ".index"


def prefix_of(path: str) -> str | None:
    """Returns the prefix of the checkpoint that a path means, or None.

    Args:
        path: A prefix, a SavedModel, or a directory of checkpoints, for the newest.
    """
    for each in (path, paths.join(path, "variables/variables")):
        if tf.io.gfile.exists(each + _INDEX):
            return each
    if not tf.io.gfile.isdir(path):
        return None
    newest = tf.train.latest_checkpoint(path)
    if newest is not None:
        return str(newest)
    found = [name for name in tf.io.gfile.listdir(path) if name.endswith(_INDEX)]
    if len(found) > 1:
        raise ValueError(
            "A directory of checkpoints must name its newest one in a file `checkpoint`. Received: "
            f"{path!r} with {sorted(found)}. Pass the prefix of one checkpoint."
        )
    return paths.join(path, found[0].removesuffix(_INDEX)) if found else None


def rows_beside(prefix: str, wanted: dict[str, SavedTable]) -> dict[str, SavedTable]:
    """Returns tables whose rows a FileSystemSaver wrote beside a checkpoint.

    Args:
        prefix: The checkpoint's prefix.
        wanted: The tables by name, without shards.

    Raises:
        ValueError: There are no rows for a table, or they belong to a newer checkpoint.
    """
    folder = paths.folder_of(prefix)
    number = paths.base_name(prefix).rpartition("-")[2]
    chosen = paths.join(folder, f"{_BESIDE}-{number}")
    if not (number.isdigit() and tf.io.gfile.isdir(chosen)):
        chosen = paths.join(folder, _BESIDE)
        newest = tf.train.latest_checkpoint(folder)
        if newest is not None and paths.base_name(newest) != paths.base_name(prefix):
            raise ValueError(
                f"The folder {_BESIDE!r} holds the rows of the newest checkpoint only, because "
                f"tfra overwrites it. Received: path={prefix!r}, while the newest is {newest!r}. "
                "Import the newest, or pass the folder itself as the path."
            )
    found = key_value_files.tables_in(chosen) if tf.io.gfile.isdir(chosen) else {}
    missing = sorted(name for name in wanted if flat(name) not in found)
    if missing:
        raise ValueError(
            "A checkpoint with a FileSystemSaver must have the folder with the rows beside it. "
            f"Received: no files of tables {missing} in {chosen!r}. Copy the folder there, or pass "
            "the path of the folder."
        )
    return {
        name: SavedTable(name, table.path, found[flat(name)].shards)
        for name, table in wanted.items()
    }
