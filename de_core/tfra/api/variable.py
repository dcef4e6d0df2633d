"""`Variable` and `get_variable` with the arguments and methods of `tfra`."""

from __future__ import annotations

import warnings
import weakref
from collections.abc import MutableMapping, Sequence
from typing import Any

import tensorflow as tf

from de_core.base.types import DTypeLike, InitializerLike, Rows, TensorLike
from de_core.storage.creator import KVCreator
from de_core.tables.restrict import RestrictPolicy
from de_core.tables.router import Partitioner, default_partition_fn
from de_core.tfra.api.conversion import cast_array, initial_value, string_row
from de_core.tfra.api.shards import Shard
from de_core.tfra.api.slots import slots_of
from de_core.tfra.api.wrappers import TrainableWrapper
from de_core.variable import variable
from de_core.variable.new_table import DEFAULT_NAME
from de_core.variable.scope import requested


class Variable(variable.Variable):
    """See `de.Variable`. Arrays of another dtype are converted, with a warning.

    In a TensorFlow 1 graph, initializing the variables keeps the rows of a table.

    Args:
        key_dtype: See `de.Variable`, also for the arguments that are not described here.
        initializer: Defines the row of a key without a row. An array of one element fills the row.
            Numbers are cast to `value_dtype`. String values may have an initial string, or one per
            value. A variance scaling (Glorot, He) without `init_size` scales by `dim`.
        shared_name: Not used.
        bp_v2: Ignored. Concurrent updates of a row always add up.
        short_file_name: Ignored. File names are always short.

    Example:
    >>> from de_core import tfra
    >>> users = tfra.dynamic_embedding.Variable(dim=2, name="tfra_users", initializer=0.5)
    >>> users.lookup([7]).numpy().tolist()
    [[0.5, 0.5]]
    """

    _keeps_rows = True
    trainable_store: MutableMapping[str, TrainableWrapper]

    def __init__(
        self,
        key_dtype: DTypeLike = tf.int64,
        value_dtype: DTypeLike = tf.float32,
        dim: int = 1,
        devices: Sequence[str] | None = None,
        partitioner: Partitioner | None = default_partition_fn,
        shared_name: str | None = None,
        name: str | None = DEFAULT_NAME,
        initializer: InitializerLike = None,
        trainable: bool = True,
        checkpoint: bool = True,
        init_size: int = 0,
        kv_creator: KVCreator | None = None,
        restrict_policy: type[RestrictPolicy] | None = None,
        bp_v2: bool = False,
        short_file_name: bool = False,
        **further: Any,
    ) -> None:
        text = tf.as_dtype(value_dtype) == tf.string and initializer is not None
        if not text:
            initializer = initial_value(initializer, tf.as_dtype(value_dtype), dim, init_size)
        super().__init__(
            key_dtype,
            value_dtype,
            dim,
            devices,
            partitioner,
            shared_name,
            name,
            None if text else initializer,
            trainable,
            checkpoint,
            init_size,
            kv_creator,
            restrict_policy,
            bp_v2,
            **further,
        )
        self.kv_creator = kv_creator
        self.short_file_name = bool(short_file_name)
        self._table.cast = cast_array
        # A cycle of objects would keep a table's memory, and a name would keep the last ids.
        is_eager = tf.executing_eagerly()
        self.__dict__["trainable_store"] = weakref.WeakValueDictionary() if is_eager else {}
        self._default = string_row(initializer, self.dim) if text else None
        self.initializer = initializer

    def lookup(
        self, keys: TensorLike, return_exists: bool | str = False, name: str | None = None
    ) -> Any:
        """Reads the rows of `keys`; see `de.Variable.lookup`."""
        if self._default is None:
            return self._rows.lookup(keys, return_exists, name)
        rows, exists = self._rows.lookup(keys, True, name)
        rows = tf.where(tf.expand_dims(exists, -1), rows, self._default)
        return (rows, exists) if return_exists is True else rows

    def embedding_lookup(
        self, ids: Any, name: str | None = None, max_norm: float | None = None
    ) -> tuple[Rows, TrainableWrapper]:
        """Returns the rows of `ids`, ids.shape + [dim], and a wrapper for an optimizer."""
        with tf.name_scope(name or "embedding_lookup"):
            if self._default is None:
                rows = self._rows.lookup_scaled(ids, max_norm)
            else:
                rows = self.lookup(ids)
        return rows, TrainableWrapper(self, ids, max_norm)

    def get_slot_variables(self, optimizer: Any) -> list[Any]:
        """Returns the slots that an optimizer keeps in the rows."""
        return slots_of(self, optimizer)

    def get_trainable_by_name(self, name: str) -> TrainableWrapper | None:
        """Returns the wrapper that was made with this name, while the program holds it."""
        return self.trainable_store.get(name)

    def load_from_file_system_with_restore_function(
        self, dirpath: str, proc_size: int = 1, proc_rank: int = 0, buffer_size: int = 4194304
    ) -> Any:
        """Reads files; see `load_from_file_system`."""
        return self.load_from_file_system(dirpath, proc_size, proc_rank, buffer_size=buffer_size)

    def _trackable_children(self, save_type: str = "checkpoint", **options: Any) -> dict[str, Any]:
        """Returns the objects that TensorFlow saves. Warns if a SavedModel gets no rows."""
        if save_type == "savedmodel" and self._rows.watched is not None:
            with tf.init_scope():
                is_empty = tf.executing_eagerly() and int(self.size()) == 0
            if is_empty:
                warnings.warn(
                    "A trainable table should have rows before it is saved in a SavedModel. "
                    f"Received: no rows in table {self.name!r}, so every id gets its initial row. "
                    "Train it with a wrapped optimizer and its trainable_variables, or restore its "
                    "rows first.",
                    stacklevel=2,
                )
        return super()._trackable_children(save_type, **options)

    @property
    def tables(self) -> list[Any]:
        """The shards, one per device, with the methods of `tfra`'s tables."""
        return [Shard(table, self._table) for table in self._table.tables]

    _tables = tables


def get_variable(
    name: str,
    key_dtype: DTypeLike = tf.int64,
    value_dtype: DTypeLike = tf.float32,
    dim: int = 1,
    devices: Sequence[str] | None = None,
    partitioner: Partitioner | None = default_partition_fn,
    shared_name: str | None = "get_variable",
    initializer: InitializerLike = None,
    trainable: bool = True,
    checkpoint: bool = True,
    init_size: int = 0,
    kv_creator: KVCreator | None = None,
    restrict_policy: type[RestrictPolicy] | None = None,
    bp_v2: bool = False,
    short_file_name: bool = False,
) -> Variable:
    """Returns the Variable with this name. Creates the Variable if it does not exist.

    A scope with reuse=True creates the Variable too, as in `tfra`. The arguments are those of
    `Variable`.

    Example:
    >>> from de_core import tfra
    >>> tfra.dynamic_embedding.get_variable("tfra_items", dim=4).dim
    4
    """
    arguments = dict(locals())
    made: Variable = requested(arguments.pop("name"), arguments, Variable, may_be_new=True)
    return made
