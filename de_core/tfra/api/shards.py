"""One shard of a Variable, with the methods of `tfra`'s tables."""

from __future__ import annotations

import copy
from typing import Any

import tensorflow as tf

from de_core.base.ops import library
from de_core.base.types import TensorLike
from de_core.checkpoint.file_system import FileSystem
from de_core.tables import keys_and_values
from de_core.tables.router import Router
from de_core.tables.served_copy import file_stem
from de_core.tables.sharded import ShardedTable
from de_core.tables.table import Table
from de_core.variable.graph import graph_saver


class Shard(tf.Module):
    """One shard of a Variable: `variable.tables[index]`.

    A Saver of TensorFlow 1 that has a shard in its `var_list` saves the whole table.

    Args:
        shard: The shard.
        whole: The Variable's table.
    """

    def __init__(self, shard: Table, whole: ShardedTable) -> None:
        super().__init__()
        self._shard = shard
        self._table = whole
        # A copy is not among the process's tables, so no Saver saves the shard twice.
        self._alone = copy.copy(whole)
        self._alone.tables, self._alone.router = (shard,), Router(None, 1)
        self._alone.is_one = not self._alone.is_remote
        self._alone._made = {}

    def __getattr__(self, name: str) -> Any:
        """Returns an attribute of our own table, such as `stats` or `resource_handle`."""
        if name.startswith("_"):  # while this object is made or copied
            raise AttributeError(name)
        return getattr(self._shard, name)

    @property
    def name(self) -> str:
        """The name of the shard."""
        return str(self._shard.name)

    def _trackable_children(self, save_type: str = "checkpoint", **_: Any) -> dict[str, Any]:
        return {}  # the Variable saves the rows

    def _gather_saveables_for_checkpoint(self) -> dict[str, Any]:
        return graph_saver.saveables()

    def size(self, name: str | None = None) -> tf.Tensor:
        """Returns the number of rows, an int64 scalar."""
        del name
        return self._alone.size()

    def lookup(
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
            rows, exists = self._alone.find(keys_and_values.checked_keys(keys, self._alone))
            if dynamic_default_values is not None:
                rows = tf.where(tf.expand_dims(exists, -1), rows, dynamic_default_values)
        return (rows, exists) if return_exists else rows

    def insert(
        self, keys: TensorLike, values: TensorLike, name: str | None = None
    ) -> tf.Operation | None:
        """Writes the rows of `keys`."""
        with tf.name_scope(name or "insert"):
            pairs = keys_and_values.checked_pairs(keys, values, self._alone)
            return self._alone.write(library.de_table_insert_or_assign, pairs)

    def remove(self, keys: TensorLike, name: str | None = None) -> tf.Operation | None:
        """Removes the rows of `keys`."""
        with tf.name_scope(name or "remove"):
            keys = keys_and_values.checked_keys(keys, self._alone)
            return self._alone.erase(tf.reshape(keys, [-1]))

    def clear(self, name: str | None = None) -> tf.Operation | None:
        """Removes all rows."""
        del name
        return self._alone.clear()

    def export(self, name: str | None = None) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns all keys [n] and their rows [n, dim]."""
        del name
        return self._alone.export()

    def save_to_file_system(
        self,
        dirpath: str,
        file_name: str | None = None,
        dirpath_env: str = "TFRA_SAVED_KV",
        append_to_file: bool = False,
        buffer_size: int = 4194304,
        name: str | None = None,
    ) -> tf.Operation | None:
        """Writes the shard to one file; see `Variable.save_to_file_system`."""
        names = [file_name or file_stem(self.name)]
        return FileSystem(self._alone).save_to_file_system(
            dirpath,
            file_name_list=names,
            dirpath_env=dirpath_env,
            append_to_file=append_to_file,
            buffer_size=buffer_size,
            name=name,
        )

    def load_from_file_system(
        self,
        dirpath: str,
        file_name: str | None = None,
        dirpath_env: str = "TFRA_SAVED_KV",
        load_entire_dir: bool = False,
        buffer_size: int = 4194304,
        name: str | None = None,
    ) -> Any:
        """Reads what `save_to_file_system` wrote, and keeps other rows, as `tfra` does."""
        names = [file_name or file_stem(self.name)]
        return FileSystem(self._alone).load_from_file_system(
            dirpath,
            file_name_list=None if load_entire_dir else names,
            dirpath_env=dirpath_env,
            load_entire_dir=load_entire_dir,
            buffer_size=buffer_size,
            name=name,
            merge=True,
        )
