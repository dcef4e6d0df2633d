"""What TensorFlow and Keras save of a `Variable`: checkpoints, weight files, SavedModels."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from de_core import checkpoint as checkpoints
from de_core.base.checks import received
from de_core.checkpoint import saved_model_rows, weights_file
from de_core.checkpoint.file_system import FileSystem
from de_core.tables.sharded import ShardedTable
from de_core.variable.graph import savers

_USE_CHECKPOINTS = "Use tf.train.Checkpoint or de.checkpoint.save."


class Persistence(FileSystem):
    """The part of a `Variable` that saving and restoring a model calls."""

    checkpoint: bool
    _store: ShardedTable
    _checkpointed: checkpoints.TableState
    _anchor_variable: tf.Variable | None

    def save_own_variables(self, store: Any) -> None:
        """Writes the tables into a Keras weights file: rows and slots, in pieces of some MiB."""
        if self.checkpoint:
            self._store.router.require_whole("A file of weights", _USE_CHECKPOINTS)
            weights_file.write_pieces(self._store, store)

    def load_own_variables(self, store: Any) -> None:
        """Reads back what `save_own_variables` wrote, whatever the number of tables was then."""
        if self.checkpoint:
            self._store.router.require_whole("A file of weights", _USE_CHECKPOINTS)
            weights_file.read_pieces(self._store, store)

    def _gather_saveables_for_checkpoint(self) -> dict[str, Any]:
        """Tells a TensorFlow 1 Saver that was given this Variable by hand how to save it.

        Raises:
            ValueError: A Saver asks. It would name all objects that are no variables alike, and
                save the last of them alone.
        """
        if tf.executing_eagerly():
            savers.refuse_in_eager_mode(self._store.name)
        elif savers.asking() is not None:
            raise ValueError(
                "A Saver must not be given tables: without a `var_list` it finds those of its "
                "graph itself, all that were made with checkpoint=True. "
                + received(var_list_with=self)
            )
        return super()._gather_saveables_for_checkpoint()  # type: ignore[misc]

    def _checkpoint_adapter(self, path: str | None) -> None:
        """Restores the rows of a SavedModel; TensorFlow calls it before it restores any child.

        Args:
            path: The checkpoint's prefix.
        """
        if self.checkpoint and path is not None:
            saved_model_rows.restore(self._store, path)

    def _trackable_children(self, save_type: str = "checkpoint", **_: Any) -> dict[str, Any]:
        """Returns what TensorFlow shall save: the rows' bytes, or the tables as assets."""
        if save_type == "savedmodel":
            children = self._store.in_saved_model()
            if self._anchor_variable is not None:
                children["anchor"] = self._anchor_variable
            return children
        return {"rows": self._checkpointed} if self.checkpoint else {}
