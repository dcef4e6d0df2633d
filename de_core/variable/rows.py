"""Reads and writes rows by key."""

from __future__ import annotations

import numbers
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from de_core.base.checks import received
from de_core.base.ops import library
from de_core.base.plain_python import plain_python
from de_core.distributed import strategy
from de_core.tables import keys_and_values
from de_core.tables.sharded import ShardedTable
from de_core.variable.anchor import tensor_variable
from de_core.variable.graph.loop_anchor import anchor_tensor

Regularizer = Callable[[tf.Tensor], tf.Tensor | None]


class Rows(tf.Module):
    """The rows of a `Variable`: reads that gradients flow through, and writes.

    A `tf.Module`, so that every module that holds the `Variable` finds its anchor.

    Args:
        table: Holds the rows.
        anchor: Stands for the table where gradients are taken; None if nothing trains it.
        regularizer: Returns the penalty on rows [n, dim], or None.
    """

    def __init__(self, table: ShardedTable, anchor: Any, regularizer: Regularizer | None) -> None:
        super().__init__(name="rows")
        self.regularizer = regularizer
        self._table = table
        self._anchor = anchor
        self._watched = None if anchor is None else tensor_variable(anchor)

    @property
    def watched(self) -> tf.Variable | None:
        """The `tf.Variable` that a tape watches, or None if lookups record no gradients."""
        if self._watched is None and self._anchor is not None:
            # It has none while Keras infers shapes, which it does without variables.
            self._watched = tensor_variable(self._anchor)
        return self._watched

    @plain_python
    def lookup(
        self, keys: Any, return_exists: bool | str = False, name: str | None = None
    ) -> tf.Tensor | tuple[tf.Tensor, tf.Tensor]:
        """Reads the rows of `keys`; a pure read, through which gradients flow.

        Args:
            keys: Tensor, array or list of the table's key dtype, any shape.
            return_exists: Whether to return also which keys have a row. A string is the `name`,
                which older programs pass here.
            name: Of the operation.

        Returns:
            Values, keys.shape + [dim]; a key without a row reads as its initial row. With
            `return_exists` also a bool tensor, keys.shape.

        Raises:
            TypeError: `keys` are not of the key dtype.
        """
        if isinstance(return_exists, str):
            name, return_exists = return_exists, False
        with tf.name_scope(name or "lookup"):
            keys = self._checked(keys)
            values, exists = self._table.find(keys)
            values = self.recorded(keys, values)
        return (values, exists) if return_exists else values

    def lookup_scaled(self, ids: Any, max_norm: float | None) -> Any:
        """Looks dense or ragged ids up, and scales rows longer than `max_norm` down to it.

        Args:
            ids: Ids of the key dtype, any shape.
            max_norm: The largest norm of a row in the result, above 0; None for any.

        Returns:
            Rows, ids.shape + [dim]; ragged if `ids` are.

        Raises:
            TypeError: `ids` are not of the key dtype.
            ValueError: `max_norm` is not above 0.
        """
        if isinstance(max_norm, numbers.Real) and not max_norm > 0:
            raise ValueError(f"`max_norm` must be None or above 0. {received(max_norm=max_norm)}")
        if isinstance(ids, tf.RaggedTensor):
            keys_and_values.note_kind("ragged", self._table)
            return ids.with_flat_values(self.lookup_scaled(ids.flat_values, max_norm))
        with tf.name_scope("lookup"):
            keys = self._checked(ids)
            rows = self.recorded(keys, self._table.find(keys)[0])
        return rows if max_norm is None else tf.clip_by_norm(rows, max_norm, axes=[-1])

    def recorded(self, keys: tf.Tensor, values: tf.Tensor) -> tf.Tensor:
        """Records a lookup: on tapes, and its penalty in the losses of a graph.

        Args:
            keys: Keys that were looked up, any shape.
            values: Their rows, keys.shape + [dim].

        Returns:
            The rows, through which gradients flow.
        """
        values = self._anchored(keys, values)
        if self.regularizer is not None:
            self.collect_penalty(keys)
        return values

    def anchors(self, after: Sequence[tf.Tensor] = ()) -> list[tf.Tensor]:
        """Returns what lookups in the current graph take as the anchor, or nothing.

        Args:
            after: Read an anchor of this task after these tensors.
        """
        anchor = self.watched
        if anchor is None:
            return []
        if tf.distribute.in_cross_replica_context() and strategy.mirrors_replicas():
            return []  # the caller is no replica, and only replicas take gradients
        return [anchor_tensor(anchor, self._table, after)]

    def collect_penalty(self, keys: tf.Tensor) -> None:
        """Adds the penalty on the rows of one lookup to the graph's losses, if there is any."""
        if self.regularizer is not None and not tf.executing_eagerly():
            loss = self._penalty(keys)
            if loss is not None:
                key = tf.compat.v1.GraphKeys.REGULARIZATION_LOSSES
                tf.compat.v1.add_to_collection(key, loss)

    def regularization_loss(self, keys: Any, name: str | None = None) -> tf.Tensor:
        """Returns the regularizer's penalty on the rows of the distinct ones of `keys`.

        Args:
            keys: Of the key dtype, any shape.
            name: Of the operation.

        Returns:
            What the regularizer returns, a scalar as a rule; zero for None or without one.

        Raises:
            TypeError: `keys` are not of the key dtype.

        Example:
        >>> import de_core as de
        >>> users = de.Variable(dim=2, initializer=1.0, regularizer=tf.nn.l2_loss)
        >>> float(users.regularization_loss([7, 7, 8]))
        2.0
        """
        loss = self._penalty(self._checked(keys), name)
        return tf.zeros([], self._table.spec.value_dtype) if loss is None else loss

    @plain_python
    def find_or_insert(self, keys: Any, name: str | None = None) -> tf.Tensor:
        """Reads rows as `lookup` does and stores the initial row of every key that had none.

        Args:
            keys: Of the key dtype, any shape.
            name: Of the operation.

        Returns:
            Values, keys.shape + [dim].

        Raises:
            TypeError: `keys` are not of the key dtype.

        Example:
        >>> import de_core as de
        >>> users = de.Variable(dim=2, initializer=0.5)
        >>> users.find_or_insert([7]).numpy().tolist(), int(users.size())
        ([[0.5, 0.5]], 1)
        """
        with tf.name_scope(name or "find_or_insert"):
            keys = self._checked(keys)
            return self._anchored(keys, self._table.find_or_insert(keys)[0])

    @plain_python
    def upsert(self, keys: Any, values: Any, name: str | None = None) -> tf.Operation | None:
        """Inserts or overwrites rows; of several rows for one key the last wins.

        Args:
            keys: Of the key dtype, any shape.
            values: Of the value dtype, keys.shape + [dim]; for a dim of 1 also keys.shape.
            name: Of the operation.

        Returns:
            The operation, or None in eager mode.

        Raises:
            TypeError: `keys` or `values` are not of the table's dtypes.
            ValueError: `values` is not of shape keys.shape + [dim].
        """
        with tf.name_scope(name or "upsert"):
            pairs = self._checked_pairs(keys, values)
            return self._table.write(library.de_table_insert_or_assign, pairs)

    @plain_python
    def accum(
        self,
        keys: Any,
        old_values: Any,
        new_values: Any,
        exists: Any = None,
        name: str | None = None,
    ) -> tf.Operation | None:
        """Adds `new_values - old_values` to existing rows and inserts `new_values` for new keys.

        Args:
            keys: Of the key dtype, any shape.
            old_values: What `lookup` returned, keys.shape + [dim].
            new_values: What they shall become, keys.shape + [dim].
            exists: Not used: the table itself tells which keys have a row now, so that no
                change is lost when another worker inserted or removed one meanwhile.
            name: Of the operation.

        Returns:
            The operation, or None in eager mode.

        Raises:
            TypeError: The keys or values are not of the table's dtypes, or its values no numbers.
            ValueError: The values are not of shape keys.shape + [dim].
        """
        del exists
        if self._table.spec.value_dtype in (tf.bool, tf.string):
            raise TypeError(
                f"`accum` needs numbers as values; use `upsert` for table {self._table.name!r}. "
                + received(value_dtype=self._table.spec.value_dtype.name)
            )
        with tf.name_scope(name or "accum"):
            flat_keys, old_rows = self._checked_pairs(keys, old_values)
            _, new_rows = self._checked_pairs(keys, new_values)
            return self._table.write(library.de_table_accum, (flat_keys, old_rows, new_rows))

    @plain_python
    def remove(self, keys: Any, name: str | None = None) -> tf.Operation | None:
        """Removes rows and their optimizer slots; keys without a row are ignored.

        Args:
            keys: Of the key dtype, any shape.
            name: Of the operation.

        Returns:
            The operation, or None in eager mode.

        Raises:
            TypeError: `keys` are not of the key dtype.
        """
        with tf.name_scope(name or "remove"):
            return self._table.erase(tf.reshape(self._checked(keys), [-1]))

    @plain_python
    def clear(self, name: str | None = None) -> tf.Operation | None:
        """Removes all rows; returns the operation, or None in eager mode."""
        with tf.name_scope(name or "clear"):
            return self._table.clear()

    def _penalty(self, keys: tf.Tensor, name: str | None = None) -> tf.Tensor | None:
        """Returns what the regularizer says of the distinct ones of `keys`."""
        if self.regularizer is None:
            return None
        with tf.name_scope(name or "regularization_loss"):
            distinct, _ = tf.unique(tf.reshape(keys, [-1]))
            return self.regularizer(self._anchored(distinct, self._table.find(distinct)[0]))

    def _anchored(self, keys: tf.Tensor, values: tf.Tensor) -> tf.Tensor:
        """Ties rows to the anchor, so that a tape records where they come from."""
        if keys.shape.rank is None:
            # The gradient needs to know the rows' width. A shape of unknown rank does not tell it.
            dim = self._table.spec.dim
            rows = self._anchored(tf.reshape(keys, [-1]), tf.reshape(values, [-1, dim]))
            return tf.reshape(rows, tf.shape(values))
        # The anchor is read once the rows are there: of two operations that become ready at once
        # TensorFlow would hand the lookup to another thread.
        anchors = self.anchors([values])
        return library.de_embedding_anchor(anchors[0], keys, values) if anchors else values

    def _checked(self, keys: Any) -> tf.Tensor:
        table = self._table
        if (
            isinstance(keys, tf.Tensor)
            and keys.dtype == table.spec.key_dtype
            and "dense" in table.kinds_of_ids
        ):
            return keys  # nothing to convert or to note
        return keys_and_values.checked_keys(keys, table)

    def _checked_pairs(self, keys: Any, values: Any) -> tuple[tf.Tensor, tf.Tensor]:
        return keys_and_values.checked_pairs(keys, values, self._table)
