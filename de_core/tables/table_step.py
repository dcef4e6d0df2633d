"""One table's part of an optimizer step."""

from __future__ import annotations

from typing import NamedTuple

import tensorflow as tf

from de_core.tables.router import summed_rows
from de_core.tables.sharded import ShardedTable
from de_core.tables.table import apply


class TableStep(NamedTuple):
    """One optimizer step in one table.

    Attributes:
        gradient: Values [n, dim]; indices [n] are the keys.
        table: The table.
        settings: The rule's hyperparameters, float64 [k]. Tables with equal settings have the same
            tensor.
        owner: Scalar string, the name under which the table keeps the optimizer's slots.
        rule: The engine's name of the update rule.
        average: Whether to keep a moving average of each row.
    """

    gradient: tf.IndexedSlices
    table: ShardedTable
    settings: tf.Tensor
    owner: tf.Tensor
    rule: str
    average: bool

    @property
    def keys(self) -> tf.Tensor:
        """The keys [n] of the gradient's slices."""
        return self.table.keys_of(self.gradient)

    def run(self) -> tf.Operation | None:
        """Does the step by itself. Returns the operation, or None in eager mode."""
        keys, table = self.keys, self.table
        batch = (keys, self.gradient.values)
        if table.is_remote:
            batch = summed_rows(*batch)
        attributes = {"rule": self.rule, "average": self.average}
        done = table.write(apply, batch, self.settings, self.owner, **attributes)
        return table.updated(keys, done)

    def run_in_shard(
        self, shard: int, keys: tf.Tensor, values: tf.Tensor, settings: tf.Tensor
    ) -> tf.Operation | None:
        """Does a shard's part of the step: its keys [m] with their gradients [m, dim].

        `settings` are a tensor on the shard's device. Returns the operation, or None in eager mode.
        """
        return self.table.tables[shard].run(
            apply,
            keys,
            values,
            settings,
            self.owner,
            rule=self.rule,
            average=self.average,
        )
