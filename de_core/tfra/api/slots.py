"""Slots of optimizers with the methods of `tfra`'s slot tables."""

from __future__ import annotations

import tensorflow as tf

from de_core.base.types import TensorLike
from de_core.tables import keys_and_values
from de_core.variable import slots
from de_core.variable.variable import Variable


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


def slots_of(variable: Variable, optimizer: object = None) -> list[SlotVariable]:
    """Returns the slots of one optimizer, or of all optimizers in eager mode."""
    table = variable._table
    if optimizer is not None:
        found = Variable.get_slot_variables(variable, optimizer)
        return [SlotVariable(table, each._owner, each.slot_name, each.dim) for each in found]
    every = [(*name.rpartition("/"), each) for name, each in table.slots_of_optimizers().items()]
    return [SlotVariable(table, owner, slot, width) for owner, _, slot, width in every]
