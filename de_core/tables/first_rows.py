"""The first row of a key, if another table decides it instead of the `initializer`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import tensorflow as tf

from de_core.base.ops import library
from de_core.tables.router import default_partition_fn

if TYPE_CHECKING:
    from de_core.tables.sharded import ShardedTable


class SharedRows:
    """Gives ids without a row one of a few shared rows, which are trained like other rows.

    The hash of an id chooses its shared row. A new row starts as a copy of its shared row.

    Args:
        table: The table of the shared rows, with the keys 0 to count - 1.
        count: The number of shared rows.
    """

    def __init__(self, table: ShardedTable, count: int) -> None:
        self.table = table
        self.count = count

    def keys_of(self, ids: tf.Tensor) -> tf.Tensor:
        """Returns the key of each id's shared row, int64."""
        return tf.cast(default_partition_fn(ids, self.count), tf.int64)

    def rows(self, ids: tf.Tensor, initial: tf.Tensor) -> tf.Tensor:
        """Returns the first rows of ids [n], without gradients.

        Args:
            ids: Ids without a row.
            initial: The initial rows [n, dim], for a SavedModel that holds no shared rows.
        """
        rows, exists = self.table.find(self.keys_of(ids))
        return tf.where(exists[:, tf.newaxis], rows, initial)

    def fill(
        self,
        ids: tf.Tensor,
        values: tf.Tensor,
        exists: tf.Tensor,
        rows: Callable[[tf.Tensor, tf.Tensor], tf.Tensor] | None = None,
    ) -> tf.Tensor:
        """Returns `values` with the first row of each id without a row.

        Args:
            ids: Any shape.
            values: The rows in the table, ids.shape + [dim].
            exists: Whether each id has a row, ids.shape.
            rows: Returns the first rows; None for `rows` of this object.
        """
        places = tf.where(tf.logical_not(exists))
        missing, initial = tf.gather_nd(ids, places), tf.gather_nd(values, places)
        first = (self.rows if rows is None else rows)(missing, initial)
        return tf.ensure_shape(tf.tensor_scatter_nd_update(values, places, first), values.shape)

    def insert(self, table: ShardedTable, ids: tf.Tensor) -> None:
        """Stores the first row of each id [n] that has no row and that the table admits."""
        existed = table.contains(ids)
        initial, _ = table.find_or_insert(ids, first=False)
        is_new = tf.logical_and(table.contains(ids), tf.logical_not(existed))
        new = tf.boolean_mask(ids, is_new)
        rows = self.rows(new, tf.boolean_mask(initial, is_new))
        table.write(library.de_table_insert_or_assign, (new, rows))

    def admitted(
        self, table: ShardedTable, ids: tf.Tensor, values: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Inserts the rows that a step creates, and returns its slices of ids with a row.

        Args:
            table: The table that the step trains.
            ids: [n].
            values: Gradients [n, dim].
        """
        distinct, _ = tf.unique(ids)
        self.insert(table, tf.boolean_mask(distinct, tf.logical_not(table.contains(distinct))))
        exists = table.contains(ids)
        return tf.boolean_mask(ids, exists), tf.boolean_mask(values, exists)
