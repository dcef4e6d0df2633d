"""`Variable`, its slots and `get_variable` with the arguments and methods of `tfra`."""

from __future__ import annotations

import numbers
import warnings
import weakref
from collections.abc import MutableMapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from de_core.base.checks import received
from de_core.base.types import DTypeLike, InitializerLike, Rows, TensorLike
from de_core.storage.creator import KVCreator
from de_core.tables import initial_rows, keys_and_values
from de_core.tables.restrict import RestrictPolicy
from de_core.tables.router import Partitioner, default_partition_fn
from de_core.tfra.api.shards import Shard
from de_core.tfra.api.wrappers import TrainableWrapper
from de_core.variable import slots, variable
from de_core.variable.new_table import DEFAULT_NAME
from de_core.variable.scope import requested

_warned: set[tuple[str, str]] = set()


class SlotVariable(slots.SlotVariable):
    """One slot that an optimizer keeps in the rows; see `de.SlotVariable`."""

    @property
    def tables(self) -> list[SlotVariable]:
        """The slot in each shard."""
        shards = map(self._table.of_one_shard, self._table.tables)
        return [SlotVariable(each, self._owner, self.slot_name, self.dim) for each in shards]

    def upsert(
        self, keys: TensorLike, values: TensorLike, name: str | None = None
    ) -> tf.Operation | None:
        """Writes the slot of keys that have a row, and ignores other keys."""
        with tf.name_scope(name or "upsert_slot"):
            keys = tf.reshape(keys_and_values.checked_keys(keys, self._table), [-1])
            values = tf.reshape(tf.convert_to_tensor(values, self.value_dtype), [-1, self.dim])
            full_name = tf.strings.join([self._owner, "/", self.slot_name])
            return self._table.assign_slot(keys, values, full_name)

    insert = upsert


def slots_of(trained: variable.Variable, optimizer: object = None) -> list[SlotVariable]:
    """Returns the slots of one optimizer, or of all optimizers in eager mode."""
    table = trained._table
    if optimizer is not None:
        found = variable.Variable.get_slot_variables(trained, optimizer)
        return [SlotVariable(table, each._owner, each.slot_name, each.dim) for each in found]
    every = [(*name.rpartition("/"), each) for name, each in table.slots_of_optimizers().items()]
    return [SlotVariable(table, owner, slot, width) for owner, _, slot, width in every]


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
            initializer = _initial_value(initializer, tf.as_dtype(value_dtype), dim, init_size)
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
        self._table.cast = _cast_array
        # A cycle of objects would keep a table's memory, and a name would keep the last ids.
        is_eager = tf.executing_eagerly()
        self.__dict__["trainable_store"] = weakref.WeakValueDictionary() if is_eager else {}
        self._default = _string_row(initializer, self.dim) if text else None
        self.initializer = initializer

    def lookup(
        self, keys: TensorLike, return_exists: bool | str = False, name: str | None = None
    ) -> Any:
        """Reads the rows of `keys`; see `de.Variable.lookup`."""
        if self._default is None:
            return super().lookup(keys, return_exists, name)
        rows, exists = super().lookup(keys, True, name)
        rows = tf.where(tf.expand_dims(exists, -1), rows, self._default)
        return (rows, exists) if return_exists is True else rows

    def embedding_lookup(
        self, ids: Any, name: str | None = None, max_norm: float | None = None
    ) -> tuple[Rows, TrainableWrapper]:
        """Returns the rows of `ids`, ids.shape + [dim], and a wrapper for an optimizer."""
        with tf.name_scope(name or "embedding_lookup"):
            plain = self._default is None
            rows = self._lookup_scaled(ids, max_norm) if plain else self.lookup(ids)
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
        if save_type == "savedmodel" and self._anchor_variable is not None:
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

    A scope with reuse=True creates the Variable too, as in `tfra`. It takes the arguments of
    `Variable`.

    Example:
    >>> from de_core import tfra
    >>> tfra.dynamic_embedding.get_variable("tfra_items", dim=4).dim
    4
    """
    arguments = dict(locals())
    made: Variable = requested(arguments.pop("name"), arguments, Variable, may_be_new=True)
    return made


def _cast_array(argument: str, value: Any, dtype: tf.DType, table_name: str) -> tf.Tensor | None:
    """Converts an array to a table's dtype. Warns once per table and argument.

    Returns:
        A tensor, or None for a tensor: `tfra` refuses tensors of another dtype too.

    Raises:
        TypeError: Keys would change, so that two ids might become one.
    """
    if tf.is_tensor(value) or dtype == tf.string or np.asarray(value).dtype.kind not in "iufb":
        return None
    array = np.asarray(value)
    with np.errstate(invalid="ignore"):  # NaN has no whole number; the comparison notices it
        converted = array.astype(dtype.as_numpy_dtype)
    if argument == "keys" and (converted != array).any():
        raise TypeError(
            f"`keys` of table {table_name!r} must be {dtype.name} without rounding. "
            f"{received(keys=value)} Pass whole numbers in the range of {dtype.name}."
        )
    if (table_name, argument) not in _warned:
        _warned.add((table_name, argument))
        warnings.warn(
            f"`{argument}` of table {table_name!r} are converted from {array.dtype} to "
            f"{dtype.name}, as tfra does. Pass {dtype.name}.",
            stacklevel=2,
        )
    return tf.constant(converted)


def _initial_value(initializer: Any, dtype: tf.DType, dim: int, init_size: int) -> Any:
    """Returns an initializer that `de.Variable` takes.

    An array of one element fills the row. Numbers for a table of integers are cast. A variance
    scaling has the fan `dim` if `init_size` is 0.
    """
    if tf.is_tensor(initializer):
        initializer = initial_rows.values_of(initializer)
    if isinstance(initializer, (numbers.Number, list, tuple, np.ndarray, np.generic)):
        values = np.asarray(initializer)
        with np.errstate(invalid="ignore"):  # NaN has no whole number
            there = values.astype(dtype.as_numpy_dtype) if dtype.is_integer else values
        if dtype.is_integer and (there != values).any():
            warnings.warn(
                f"`initializer` should hold {dtype.name} numbers. {received(initializer=values)} "
                f"They are cast to {there}, as in tfra.",
                stacklevel=3,
            )
        return there.reshape([]) if there.shape == (1,) else there
    return initial_rows.with_fans(initializer, init_size or dim, dim)


def _string_row(initializer: Any, dim: int) -> tf.Tensor:
    """Returns the strings [dim] of a key without a row.

    The initializer is one string or `dim` strings, or a function `f(shape)` that returns them.

    Raises:
        TypeError: `initializer` is something else.
    """
    try:
        if callable(initializer):
            config: dict[str, Any] = getattr(initializer, "get_config", dict)()
            initializer = config["value"] if "value" in config else initializer([dim])
        row = tf.reshape(tf.convert_to_tensor(initializer, tf.string), [-1])
        return tf.broadcast_to(row, [dim])
    except (TypeError, ValueError, tf.errors.OpError) as error:
        raise TypeError(
            f"The `initializer` of string values must give one string or {dim}. "
            f"{received(initializer=initializer)}"
        ) from error
