"""Reading and writing a `Variable`'s rows: its verbs."""

from __future__ import annotations

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


class Rows:
    """The part of a `Variable` that reads and writes rows by key."""

    name: str
    key_dtype: tf.DType
    value_dtype: tf.DType
    _store: ShardedTable
    _anchor: Any
    _anchor_variable: tf.Variable | None
    regularizer: Callable[[tf.Tensor], tf.Tensor | None] | None

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
            keys = keys_and_values.checked_keys(keys, self)
            values, exists = self._store.find(keys)
            values = self._looked_up(keys, values)
        return (values, exists) if return_exists else values

    def _looked_up(self, keys: tf.Tensor, values: tf.Tensor) -> tf.Tensor:
        values = self._anchored(keys, values)
        self._collect_regularization_loss(keys)
        return values

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
        loss = self._penalty(keys_and_values.checked_keys(keys, self), name)
        return tf.zeros([], self.value_dtype) if loss is None else loss

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
            keys = keys_and_values.checked_keys(keys, self)
            return self._anchored(keys, self._store.find_or_insert(keys)[0])

    def call(self, keys: Any) -> tf.Tensor:
        """Looks keys up, so that a Variable can be the first layer of a Keras model."""
        return self.lookup(keys)

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
            pairs = keys_and_values.checked_pairs(keys, values, self)
            return self._store.write(library.de_table_insert_or_assign, pairs)

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
        if self.value_dtype in (tf.bool, tf.string):
            raise TypeError(
                f"`accum` needs numbers as values; use `upsert` for table {self.name!r}. "
                + received(value_dtype=self.value_dtype.name)
            )
        with tf.name_scope(name or "accum"):
            flat_keys, old_rows = keys_and_values.checked_pairs(keys, old_values, self)
            _, new_rows = keys_and_values.checked_pairs(keys, new_values, self)
            return self._store.write(library.de_table_accum, (flat_keys, old_rows, new_rows))

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
            return self._store.erase(tf.reshape(keys_and_values.checked_keys(keys, self), [-1]))

    @plain_python
    def clear(self, name: str | None = None) -> tf.Operation | None:
        """Removes all rows; returns the operation, or None in eager mode."""
        with tf.name_scope(name or "clear"):
            return self._store.clear()

    def _collect_regularization_loss(self, keys: tf.Tensor) -> None:
        """Adds the penalty on the rows of one lookup to the graph's losses, if there is any."""
        if self.regularizer is not None and not tf.executing_eagerly():
            loss = self._penalty(keys)
            if loss is not None:
                key = tf.compat.v1.GraphKeys.REGULARIZATION_LOSSES
                tf.compat.v1.add_to_collection(key, loss)

    def _penalty(self, keys: tf.Tensor, name: str | None = None) -> tf.Tensor | None:
        """Returns what the regularizer says of the distinct ones of `keys`."""
        if self.regularizer is None:
            return None
        with tf.name_scope(name or "regularization_loss"):
            distinct, _ = tf.unique(tf.reshape(keys, [-1]))
            return self.regularizer(self._anchored(distinct, self._store.find(distinct)[0]))

    def _anchored(self, keys: tf.Tensor, values: tf.Tensor) -> tf.Tensor:
        """Ties rows to the anchor, so that a tape records where they come from."""
        if keys.shape.rank is None:
            # The gradient needs to know the rows' width. A shape of unknown rank does not tell it.
            dim = self._store.spec.dim
            rows = self._anchored(tf.reshape(keys, [-1]), tf.reshape(values, [-1, dim]))
            return tf.reshape(rows, tf.shape(values))
        # The anchor is read once the rows are there: of two operations that become ready at once
        # TensorFlow would hand the lookup to another thread.
        anchors = self._anchor_tensors([values])
        return library.de_embedding_anchor(anchors[0], keys, values) if anchors else values

    def _anchor_tensors(self, after: Sequence[tf.Tensor] = ()) -> list[tf.Tensor]:
        """Returns what lookups in the current graph take as the anchor, or nothing.

        Args:
            after: Read an anchor of this task after these tensors.
        """
        if self._anchor is not None and self._anchor_variable is None:
            # Made while Keras inferred shapes, which it does without variables.
            self._anchor_variable = tensor_variable(self._anchor)
        if self._anchor_variable is None or strategy.is_outside_of_replicas():
            return []
        return [anchor_tensor(self._anchor_variable, self._store, after)]
