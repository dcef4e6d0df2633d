"""One shard of a Variable, with the methods of `tfra`'s tables."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from de_core.base.types import TensorLike
from de_core.checkpoint.file_system import FileSystem
from de_core.tables import keys_and_values
from de_core.tables.served_copy import file_stem
from de_core.tables.sharded import ShardedTable
from de_core.tables.table import Table
from de_core.variable.graph import graph_saver
from de_core.variable.rows import Rows


class Shard(Rows, FileSystem, tf.Module):
    """One shard of a Variable: `variable.tables[index]`.

    A Saver of TensorFlow 1 that has a shard in its `var_list` saves the whole table.
    """

    def __init__(self, shard: Table, whole: ShardedTable) -> None:
        super().__init__(name="rows")
        # A copy is not among the process's tables, so no Saver saves the shard twice.
        self._table = whole.of_one_shard(shard)
        self._trained = self._watched = self._regularizer = None
        self._shard = shard
        self._whole_table = whole

    def __getattr__(self, name: str) -> Any:
        """Returns an attribute of our own table, such as `stats` or `resource_handle`."""
        if name.startswith("_"):  # while this object is made or copied
            raise AttributeError(name)
        return getattr(self._shard, name)

    @property
    def name(self) -> str:
        """The name of the shard."""
        return str(self._shard.name)

    def _gather_saveables_for_checkpoint(self) -> dict[str, Any]:
        return graph_saver.saveables()

    def size(self, name: str | None = None) -> tf.Tensor:
        """Returns the number of rows, an int64 scalar."""
        del name
        return self._table.size()

    def lookup(  # type: ignore[override]
        self,
        keys: TensorLike,
        dynamic_default_values: TensorLike | None = None,
        return_exists: bool = False,
        name: str | None = None,
    ) -> Any:
        """Reads rows.

        Args:
            keys: Any shape.
            dynamic_default_values: Rows of keys without a row, keys.shape + [dim]; None for the
                Variable's initial rows.
            return_exists: Whether to return also which keys have a row.
            name: Name of the operation.
        """
        with tf.name_scope(name or "lookup"):
            rows, exists = self._table.find(keys_and_values.checked_keys(keys, self._table))
            if dynamic_default_values is not None:
                rows = tf.where(tf.expand_dims(exists, -1), rows, dynamic_default_values)
        return (rows, exists) if return_exists else rows

    insert = Rows.upsert

    def export(self, name: str | None = None) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns all keys [n] and their rows [n, dim]."""
        del name
        return self._table.export()

    def save_to_file_system(  # type: ignore[override]
        self, dirpath: str, file_name: str | None = None, **options: Any
    ) -> tf.Operation | None:
        """Writes the shard to one file; see `Variable.save_to_file_system`."""
        options["file_name_list"] = [file_name or file_stem(self.name)]
        return super().save_to_file_system(dirpath, **options)

    def load_from_file_system(  # type: ignore[override]
        self,
        dirpath: str,
        file_name: str | None = None,
        *,
        load_entire_dir: bool = False,
        **options: Any,
    ) -> Any:
        """Reads what `save_to_file_system` wrote, and keeps other rows, as `tfra` does."""
        names = None if load_entire_dir else [file_name or file_stem(self.name)]
        options |= {"file_name_list": names, "load_entire_dir": load_entire_dir}
        return super().load_from_file_system(dirpath, merge=True, **options)
