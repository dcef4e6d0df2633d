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
    """Restores a table's rows if a checkpoint is the one inside a SavedModel.

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
            "Rows of a SavedModel must be loaded in eager mode, into a table of the name that it "
            "was saved by. Name the layer so, or use de.warm_start(directory, [table], "
            f"{{{table.name!r}: former name}}). Received: table={table.name!r} for the tables "
            f"{sorted(found)} of {directory!r}, executing_eagerly={tf.executing_eagerly()}."
        )
    table_files.restore(table, found[table.name], table_files.Reading(slots=False))
