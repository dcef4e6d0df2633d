"""Views of the slots that optimizers keep in the rows of a table, and the mark of frozen rows."""

from __future__ import annotations

from typing import cast

import tensorflow as tf

from de_core.base.checks import received, require_eager
from de_core.base.no_autograph import no_autograph
from de_core.base.ops import library
from de_core.base.types import Optimizer, TensorLike
from de_core.tables import keys_and_values
from de_core.tables.policy import FREEZE_OWNER, FROZEN, RESERVED_OWNER
from de_core.tables.sharded import ShardedTable
from de_core.tables.spec import arithmetic_dtype


class SlotVariable:
    """A read-only view of one slot that an optimizer keeps in the rows of a table.

    The view has the keys of the table. The slot is saved and restored with the table.

    Args:
        table: The table.
        owner: The optimizer's name in the table, a string or a scalar string tensor.
        slot: The slot's name, such as "m".
        width: Numbers per row.
    """

    def __init__(self, table: ShardedTable, owner: str | tf.Tensor, slot: str, width: int) -> None:
        self._table = table
        self._owner = owner
        self.slot_name = slot
        self.dim = width

    @property
    def name(self) -> str:
        """The names of the table and the slot, such as "users/m"."""
        return f"{self._table.name}/{self.slot_name}"

    @property
    def key_dtype(self) -> tf.DType:
        """Dtype of the keys."""
        return self._table.spec.key_dtype

    @property
    def value_dtype(self) -> tf.DType:
        """Dtype of the slot: float64 if the table's values are float64, otherwise float32."""
        return tf.float64 if self._table.spec.value_dtype == tf.float64 else tf.float32

    @no_autograph
    def lookup(self, keys: TensorLike, name: str | None = None) -> tf.Tensor:
        """Returns the slot of each key, keys.shape + [dim]. Writes nothing.

        Args:
            keys: Tensor, array or list of the key dtype, any shape. For a key without a row, the
                result is the slot's initial value.
            name: Name of the operation.

        Raises:
            TypeError: `keys` have another dtype.
            tf.errors.NotFoundError: The slot was dropped.
        """
        with tf.name_scope(name or "lookup_slot"):
            return self._read(keys_and_values.checked_keys(keys, self._table))

    @no_autograph
    def export(self, name: str | None = None) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns all keys [n] and their slots [n, dim], in no particular order."""
        with tf.name_scope(name or "export_slot"):
            keys, _ = self._table.export()
            return keys, self._read(keys)

    @no_autograph
    def size(self, name: str | None = None) -> tf.Tensor:
        """Returns the number of rows, an int64 scalar."""
        with tf.name_scope(name or "size"):
            return self._table.size()

    def _read(self, keys: tf.Tensor) -> tf.Tensor:
        full_name = tf.strings.join([self._owner, "/", self.slot_name])
        return self._table.find_slot(keys, full_name, self.dim)

    def __repr__(self) -> str:
        return f"<de.SlotVariable {self.name!r} [{self.dim}]>"


def get_slot_variables(optimizer: Optimizer) -> list[SlotVariable]:
    """Returns views of the slots that an optimizer keeps in all tables that it trains.

    Args:
        optimizer: The result of `DynamicEmbeddingOptimizer`.

    Returns:
        One view per table and slot. Empty before the first step, which creates the slots.

    Raises:
        TypeError: `optimizer` is not the result of `DynamicEmbeddingOptimizer`.

    Example:
    >>> import keras
    >>> import de_core as de
    >>> users = de.Variable(dim=2, name="users")
    >>> optimizer = de.DynamicEmbeddingOptimizer(keras.optimizers.SGD(1.0, momentum=0.9))
    >>> gradient = tf.IndexedSlices(tf.ones([1, 2]), tf.constant([7], tf.int64))
    >>> optimizer.apply([gradient], [users])
    >>> [slot] = de.get_slot_variables(optimizer)
    >>> slot.name, slot.lookup([7]).numpy().tolist()
    ('users/momentum', [[-1.0, -1.0]])
    """
    _check_optimizer(optimizer)
    return [slot for table in optimizer.tables for slot in slots_of(table, optimizer)]


def slots_of(table: ShardedTable, optimizer: Optimizer) -> list[SlotVariable]:
    """Returns views of the slots that an optimizer keeps in one table."""
    with tf.init_scope():  # leaves the graph of a tf.function, but not a TensorFlow 1 graph
        if tf.executing_eagerly():
            prefix = f"{optimizer.slots_owner.numpy().decode()}/"
            found = {
                name.removeprefix(prefix): width
                for name, width in table.slots().items()
                if name.startswith(prefix)
            }
        else:
            found = optimizer.slots_in(table)
    owner = optimizer.slots_owner
    return [SlotVariable(table, owner, name, width) for name, width in found.items()]


class Slots:
    """The slots that optimizers keep in the rows of one table. A base class of `Variable`."""

    _table: ShardedTable

    @no_autograph
    def get_slot_variables(self, optimizer: Optimizer) -> list[SlotVariable]:
        """Returns views of the slots that an optimizer keeps in the rows.

        Args:
            optimizer: The result of `DynamicEmbeddingOptimizer`.

        Returns:
            One view per slot. Empty before the optimizer's first step.

        Raises:
            TypeError: `optimizer` is not the result of `DynamicEmbeddingOptimizer`.
        """
        _check_optimizer(optimizer)
        return slots_of(self._table, optimizer)

    @no_autograph
    def slot_owners(self) -> list[str]:
        """Returns the names of the optimizers that keep slots in the rows. Eager mode only."""
        require_eager("slot_owners", "Call it outside of the function.")
        names = self._table.slots_of_optimizers()
        return list(dict.fromkeys(name.rpartition("/")[0] for name in names))

    @no_autograph
    def drop_slots(self, optimizer: Optimizer | str) -> tf.Operation | None:
        """Removes an optimizer's slots from all rows.

        Values and the slots of other optimizers stay. If the optimizer is used again, its slots
        start from their initial values.

        Args:
            optimizer: The result of `DynamicEmbeddingOptimizer`, or a name from `slot_owners()`.

        Returns:
            The operation, or None in eager mode.

        Raises:
            TypeError: `optimizer` is neither.
            ValueError: In eager mode, no optimizer of this name keeps slots in the rows.

        Example:
        >>> import keras
        >>> import de_core as de
        >>> users = de.Variable(dim=2, name="users")
        >>> optimizer = de.DynamicEmbeddingOptimizer(keras.optimizers.Adam())
        >>> gradient = tf.IndexedSlices(tf.ones([1, 2]), tf.constant([7], tf.int64))
        >>> optimizer.apply([gradient], [users])
        >>> users.drop_slots(optimizer)
        >>> users.slot_owners()
        []
        """
        if isinstance(optimizer, str) and optimizer != RESERVED_OWNER:
            owner: str | tf.Tensor = optimizer
            if tf.executing_eagerly() and optimizer not in (owners := self.slot_owners()):
                raise ValueError(
                    "`optimizer` must be a result of de.DynamicEmbeddingOptimizer or a name from "
                    f"`slot_owners()`, here {owners}. {received(optimizer=optimizer)}"
                )
        else:
            _check_optimizer(optimizer)
            owner = cast("Optimizer", optimizer).slots_owner
        return self._table.each(library.de_table_drop_slots, owner)

    @no_autograph
    def freeze(self) -> None:
        """Freezes all rows that exist now. Rows that come later learn. Eager mode only.

        Optimizer steps leave a frozen row and its slots as they are, but count as a use of the row.
        Steps that have begun may still change it. `upsert` changes the row and keeps its mark, a
        slot of at most 8 bytes. A restore also replaces the mark: a row that was saved without one,
        or is read with `slots=False`, learns. Policies may evict frozen rows. A second call also
        freezes the rows that came since.

        Raises:
            NotImplementedError: Called in a graph, or rows are in another process or a storage.

        Example:
        >>> import keras
        >>> import de_core as de
        >>> users = de.Variable(dim=1)
        >>> users.upsert([7], [[0.5]])
        >>> users.freeze()
        >>> optimizer = de.DynamicEmbeddingOptimizer(keras.optimizers.SGD(1.0))
        >>> gradient = tf.IndexedSlices(tf.ones([2, 1]), tf.constant([7, 8], tf.int64))
        >>> optimizer.apply([gradient], [users])
        >>> users.lookup([7, 8]).numpy().tolist()
        [[0.5], [-1.0]]
        """
        table, eager = self._table, tf.executing_eagerly()
        if table.is_remote or table.outlives_its_process or not eager:
            raise NotImplementedError(
                "`freeze` needs eager mode, and rows in the memory of this process. "
                + received(table=table.name, devices=table.spec.devices, eager=eager)
                + " Call it outside of graphs, or use trainable=False for the whole table."
            )
        if not table.spec.value_dtype.is_floating:
            return  # optimizers train no such table
        table.ensure_slots(tf.constant(FREEZE_OWNER), {"frozen": (1, 0.0)})
        for shard in table.tables:
            for keys, _ in shard.export_batches():
                marks = tf.ones([len(keys), 1], arithmetic_dtype(table.spec.value_dtype))
                shard.run(library.de_table_assign_slot, keys, marks, FROZEN)

    @no_autograph
    def unfreeze(self) -> tf.Operation | None:
        """Lets all rows learn again. Returns the operation, or None in eager mode."""
        return self._table.each(library.de_table_drop_slots, FREEZE_OWNER)


def _check_optimizer(optimizer: object) -> None:
    if not hasattr(optimizer, "slots_owner"):
        raise TypeError(
            "`optimizer` must train tables: wrap it in de.DynamicEmbeddingOptimizer. "
            + received(optimizer=optimizer)
        )
