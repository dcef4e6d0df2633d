"""Restores a table's rows from the assets of a SavedModel.

tf_keras's `load_weights` takes the directory of a SavedModel and restores the checkpoint of its
variables. This checkpoint holds no rows.
"""

from __future__ import annotations

import tensorflow as tf

from de_core.base import paths
from de_core.checkpoint.sources import tables_in
from de_core.snapshot import table_files
from de_core.tables.sharded import ShardedTable

_VARIABLES = "variables"


def restore(table: ShardedTable, prefix: str) -> None:
    """Restores a table's rows if the checkpoint is part of a SavedModel; otherwise does nothing.

    Args:
        table: The table.
        prefix: The prefix of the checkpoint that TensorFlow is restoring.

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
    table_files.restore(table, found[table.name], table_files.Reading(slots=False))
