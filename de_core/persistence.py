"""What TensorFlow and Keras save of a `Variable`: checkpoints, weight files, SavedModels."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from de_core import checkpoint as checkpoints
from de_core.sharded_table import ShardedTable


class Persistence:
    """The part of a `Variable` that saving and restoring a model calls."""

    checkpoint: bool
    _store: ShardedTable
    _checkpointed: checkpoints.TableState
    _anchor_variable: tf.Variable | None

    def save_own_variables(self, store: Any) -> None:
        """Writes the tables into a Keras weights file: rows and slots, one byte array a table."""
        if not self.checkpoint:
            return
        for index, snapshot in enumerate(checkpoints.snapshots(self._store)):
            store[f"table_{index}"] = np.frombuffer(snapshot.numpy(), np.uint8)

    def load_own_variables(self, store: Any) -> None:
        """Reads back what `save_own_variables` wrote, whatever the number of tables was then."""
        if not self.checkpoint:
            return
        names = sorted(store.keys(), key=lambda key: int(key.rpartition("_")[2]))
        checkpoints.restore(self._store, [np.asarray(store[key]).tobytes() for key in names])

    def _trackable_children(self, save_type: str = "checkpoint", **_: Any) -> dict[str, Any]:
        """Returns what TensorFlow shall save: the rows' bytes, or the tables as assets."""
        if save_type == "savedmodel":
            children: dict[str, Any] = {
                f"table_{index}": table for index, table in enumerate(self._store.tables)
            }
            if self._anchor_variable is not None:
                children["anchor"] = self._anchor_variable
            return children
        return {"rows": self._checkpointed} if self.checkpoint else {}
