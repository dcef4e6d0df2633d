"""Finds the files that a path means."""

from __future__ import annotations

import tensorflow as tf

from de_core.base import paths
from de_core.base.checks import received
from de_core.tfra_files import key_value_files, tensors
from de_core.tfra_files.contents import SavedTable, flat
from de_core.tfra_files.tensors import Tensors

_BESIDE = "TFRADynamicEmbedding"
_INDEX = ".index"


def tables_at(path: str) -> tuple[Tensors | None, dict[str, SavedTable]]:
    """Returns the checkpoint that a path means, if it means one, and the tables by name.

    Args:
        path: A prefix, a SavedModel, a directory of checkpoints, or a folder of key-value files.

    Raises:
        ValueError: The path is a file, or files are missing.
        tf.errors.NotFoundError: The path does not exist.
    """
    prefix = _prefix_of(path)
    if prefix is not None:
        there = Tensors.of(prefix)
        here, beside = tensors.tables_in(there)
        return there, here | (_with_rows_beside(prefix, beside) if beside else {})
    if not tf.io.gfile.isdir(path):
        if tf.io.gfile.exists(path):
            raise ValueError(
                "The path must not be a file: tfra writes no rows into files with the endings .h5, "
                f".weights.h5 and .keras. {received(path=path)} Pass a checkpoint or a SavedModel "
                "of the same run."
            )
        raise tf.errors.NotFoundError(
            None,
            None,
            "The path must be a checkpoint's prefix, a SavedModel, or a directory of checkpoints "
            f"or key-value files. Received: path={path!r}.",
        )
    return None, key_value_files.tables_in(path)


def _prefix_of(path: str) -> str | None:
    """Returns the prefix of the checkpoint that a path means, or None."""
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


def _with_rows_beside(prefix: str, wanted: dict[str, SavedTable]) -> dict[str, SavedTable]:
    """Adds the rows that a FileSystemSaver wrote beside a checkpoint to tables without shards."""
    folder = paths.folder_of(prefix)
    number = paths.base_name(prefix).rpartition("-")[2]
    chosen = paths.join(folder, f"{_BESIDE}-{number}")
    if not (number.isdigit() and tf.io.gfile.isdir(chosen)):
        chosen = paths.join(folder, _BESIDE)
        newest = tf.train.latest_checkpoint(folder)
        found = [name for name in tf.io.gfile.listdir(folder) if name.endswith(_INDEX)]
        # Without a file `checkpoint`, any other checkpoint may be the newer one.
        others = found if newest is None else [f"{paths.base_name(newest)}{_INDEX}"]
        others = sorted({*others} - {f"{paths.base_name(prefix)}{_INDEX}"})
        if others:
            raise ValueError(
                f"The folder {_BESIDE!r} holds the rows of the newest checkpoint only, because "
                f"tfra overwrites it. Received: path={prefix!r} beside {others}. Import the "
                "newest, whose name a file `checkpoint` must tell, or pass the folder itself as "
                "the path."
            )
    there = key_value_files.tables_in(chosen) if tf.io.gfile.isdir(chosen) else {}
    missing = sorted(name for name, table in wanted.items() if flat(table.name) not in there)
    if missing:
        raise ValueError(
            "A checkpoint with a FileSystemSaver must have the folder with the rows beside it. "
            f"Received: no files of tables {missing} in {chosen!r}. Copy the folder there, or pass "
            "the path of the folder."
        )
    return {
        name: table._replace(shards=there[flat(table.name)].shards)
        for name, table in wanted.items()
    }
