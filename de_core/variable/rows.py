"""Reads and writes rows by key."""

from __future__ import annotations

import numbers
from collections.abc import Callable

import numpy as np
import tensorflow as tf

from de_core.base.checks import received
from de_core.base.no_autograph import no_autograph
from de_core.base.ops import library
from de_core.base.types import TensorLike
from de_core.distributed import strategy
from de_core.tables import keys_and_values
from de_core.tables.sharded import ShardedTable
from de_core.tables.spec import arithmetic_dtype
from de_core.variable.anchor import anchor_tensor, tensor_variable

Regularizer = Callable[[tf.Tensor], tf.Tensor | None]


class Rows:
    """Reads rows, with gradients, and writes them. A base class of `Variable`."""

    _table: ShardedTable
    #: The variable that stands for the table in gradients; None if the table is not trained.
    _trained: tf.Variable | None
    #: The `tf.Variable` of `_trained`, which a tape watches. An attribute of a `tf.Module`, so that
    #: every module that holds this object finds it.
    _watched: tf.Variable | None
    _regularizer: Regularizer | None

    @property
    def _anchor_variable(self) -> tf.Variable | None:
        """The `tf.Variable` that a tape watches, or None if lookups record no gradients."""
        if self._watched is None and self._trained is not None:
            # The Keras anchor has no `tf.Variable` while Keras infers shapes. Try again later.
            self.__dict__["_watched"] = tensor_variable(self._trained)
        return self._watched

    @no_autograph
    def lookup(
        self, keys: TensorLike, return_exists: bool | str = False, name: str | None = None
    ) -> tf.Tensor | tuple[tf.Tensor, tf.Tensor]:
        """Reads the rows of `keys`. Gradients flow to the rows. Writes nothing.

        Args:
            keys: Tensor, array or list of the key dtype, any shape.
            return_exists: Whether to return also which keys have a row. A string is taken as
                `name`, because older programs pass the name here.
            name: Name of the operation.

        Returns:
            Values, keys.shape + [dim]: the initial row for a key without a row. With
            `return_exists` the pair (values, exists), where `exists` is bool, keys.shape.

        Raises:
            TypeError: `keys` have another dtype.

        Example:
        >>> import de_core as de
        >>> users = de.Variable(dim=2, initializer=0.5)
        >>> users.lookup([7, 8]).numpy().tolist()
        [[0.5, 0.5], [0.5, 0.5]]
        """
        if isinstance(return_exists, str):
            name, return_exists = return_exists, False
        with tf.name_scope(name or "lookup"):
            keys = self._checked_ids(keys)
            values, exists = self._table.find(keys)
            values = self._anchored(keys, values)
            self._collect_penalty(keys)
        return (values, exists) if return_exists else values

    def _lookup_scaled(
        self,
        ids: TensorLike | tf.RaggedTensor,
        max_norm: float | None,
        dtype: tf.DType | None = None,
    ) -> Rows:
        """Returns the rows of dense or ragged ids, in `dtype` or the value dtype.

        Scales down rows whose L2 norm exceeds `max_norm`. The result is ragged if `ids` are.
        """
        is_known = tf.executing_eagerly() or isinstance(max_norm, numbers.Real)
        is_text = isinstance(max_norm, str)
        if max_norm is not None and is_known and (is_text or not np.all(np.greater(max_norm, 0))):
            raise ValueError(f"`max_norm` must be None or above 0. {received(max_norm=max_norm)}")
        if isinstance(ids, tf.RaggedTensor):
            keys_and_values.note_kind("ragged", self._table)
            return ids.with_flat_values(self._lookup_scaled(ids.flat_values, max_norm, dtype))
        with tf.name_scope("lookup"):
            keys = self._checked_ids(ids)
            rows = self._table.find(keys)[0]
            dtype = rows.dtype if dtype is None else dtype
            if max_norm is None:
                rows = self._anchored(keys, tf.cast(rows, dtype))
            else:  # the norm of a float16 row may overflow
                rows = self._anchored(keys, tf.cast(rows, arithmetic_dtype(rows.dtype)))
                rows = tf.cast(tf.clip_by_norm(rows, max_norm, axes=[-1]), dtype)
            self._collect_penalty(keys)
            return rows

    def _anchors(self) -> list[tf.Tensor]:
        """Returns a list of the tensor that a lookup op takes as the anchor. May be empty."""
        anchor = self._anchor_variable
        if anchor is None or not self._table.tables[0].records:
            return []
        if tf.distribute.in_cross_replica_context() and strategy.mirrors_replicas():
            return []  # outside of a replica: only replicas compute gradients
        return [anchor_tensor(anchor, self._table)]

    def _collect_penalty(self, keys: tf.Tensor) -> None:
        """Adds the penalty on the rows of `keys` to the graph's losses. Does nothing if eager."""
        if self._regularizer is not None and not tf.executing_eagerly():
            loss = self._penalty(keys)
            if loss is not None:
                key = tf.compat.v1.GraphKeys.REGULARIZATION_LOSSES
                tf.compat.v1.add_to_collection(key, loss)

    def regularization_loss(self, keys: TensorLike, name: str | None = None) -> tf.Tensor:
        """Returns the regularizer's penalty on the rows of the distinct `keys`.

        Args:
            keys: Tensor, array or list of the key dtype, any shape.
            name: Name of the operation.

        Returns:
            The regularizer's result, usually a scalar. Zero if there is no regularizer or it
            returns None. The regularizer gets 16-bit rows in float32.

        Raises:
            TypeError: `keys` have another dtype.

        Example:
        >>> import de_core as de
        >>> users = de.Variable(dim=2, initializer=1.0, regularizer=tf.nn.l2_loss)
        >>> float(users.regularization_loss([7, 7, 8]))
        2.0
        """
        loss = self._penalty(self._checked_ids(keys), name)
        dtype = arithmetic_dtype(self._table.spec.value_dtype)
        return tf.zeros([], dtype) if loss is None else loss

    @no_autograph
    def find_or_insert(self, keys: TensorLike, name: str | None = None) -> tf.Tensor:
        """Reads rows like `lookup`, and stores the initial row of every key without a row.

        Args:
            keys: Tensor, array or list of the key dtype, any shape.
            name: Name of the operation.

        Returns:
            Values, keys.shape + [dim].

        Raises:
            TypeError: `keys` have another dtype.

        Example:
        >>> import de_core as de
        >>> users = de.Variable(dim=2, initializer=0.5)
        >>> users.find_or_insert([7]).numpy().tolist(), int(users.size())
        ([[0.5, 0.5]], 1)
        """
        with tf.name_scope(name or "find_or_insert"):
            keys = self._checked_ids(keys)
            return self._anchored(keys, self._table.find(keys, insert=True)[0])

    @no_autograph
    def upsert(
        self, keys: TensorLike, values: TensorLike, name: str | None = None
    ) -> tf.Operation | None:
        """Inserts or overwrites rows. If a key occurs several times, its last row is stored.

        Args:
            keys: Tensor, array or list of the key dtype, any shape.
            values: Rows of the value dtype, keys.shape + [dim]; or keys.shape if dim is 1.
            name: Name of the operation.

        Returns:
            The operation, or None in eager mode.

        Raises:
            TypeError: `keys` or `values` have another dtype.
            ValueError: `values` have another shape.

        Example:
        >>> import de_core as de
        >>> users = de.Variable(dim=2)
        >>> users.upsert([7], [[1.0, 2.0]])
        >>> users.lookup([7]).numpy().tolist()
        [[1.0, 2.0]]
        """
        with tf.name_scope(name or "upsert"):
            pairs = keys_and_values.checked_pairs(keys, values, self._table)
            return self._table.write(library.de_table_insert_or_assign, pairs)

    @no_autograph
    def accum(
        self,
        keys: TensorLike,
        old_values: TensorLike,
        new_values: TensorLike,
        exists: TensorLike | None = None,
        name: str | None = None,
    ) -> tf.Operation | None:
        """Adds `new_values - old_values` to existing rows. Inserts `new_values` for other keys.

        Args:
            keys: Tensor, array or list of the key dtype, any shape.
            old_values: The rows that `lookup` returned, keys.shape + [dim].
            new_values: The changed rows, keys.shape + [dim].
            exists: Not used. The table checks which keys have a row now, because another worker
                may have inserted or removed rows since the lookup.
            name: Name of the operation.

        Returns:
            The operation, or None in eager mode.

        Raises:
            TypeError: The keys or values have another dtype, or the table's values are bool or
                string.
            ValueError: The values have another shape.

        Example:
        >>> import de_core as de
        >>> users = de.Variable(dim=1)
        >>> users.upsert([7], [[5.0]])
        >>> users.accum([7, 8], [[1.0], [0.0]], [[3.0], [4.0]])
        >>> users.lookup([7, 8]).numpy().tolist()
        [[7.0], [4.0]]
        """
        del exists
        if self._table.spec.value_dtype in (tf.bool, tf.string):
            raise TypeError(
                f"The values of table {self._table.name!r} must be numbers for `accum`: use "
                "`upsert`. " + received(value_dtype=self._table.spec.value_dtype.name)
            )
        with tf.name_scope(name or "accum"):
            flat_keys, old_rows = keys_and_values.checked_pairs(keys, old_values, self._table)
            _, new_rows = keys_and_values.checked_pairs(keys, new_values, self._table)
            return self._table.write(library.de_table_accum, (flat_keys, old_rows, new_rows))

    @no_autograph
    def remove(self, keys: TensorLike, name: str | None = None) -> tf.Operation | None:
        """Removes rows with their optimizer slots. Ignores keys without a row.

        Args:
            keys: Tensor, array or list of the key dtype, any shape.
            name: Name of the operation.

        Returns:
            The operation, or None in eager mode.

        Raises:
            TypeError: `keys` have another dtype.
        """
        with tf.name_scope(name or "remove"):
            return self._table.erase(tf.reshape(self._checked_ids(keys), [-1]))

    @no_autograph
    def clear(self, name: str | None = None) -> tf.Operation | None:
        """Removes all rows. Returns the operation, or None in eager mode."""
        with tf.name_scope(name or "clear"):
            return self._table.each(library.de_table_clear)

    def _penalty(self, keys: tf.Tensor, name: str | None = None) -> tf.Tensor | None:
        """Returns the regularizer's result for the rows of the distinct `keys`."""
        if self._regularizer is None:
            return None
        with tf.name_scope(name or "regularization_loss"):
            distinct, _ = tf.unique(tf.reshape(keys, [-1]))
            rows = self._table.find(distinct)[0]
            rows = tf.cast(rows, arithmetic_dtype(rows.dtype))  # a float16 sum may overflow
            return self._regularizer(self._anchored(distinct, rows))

    def _anchored(self, keys: tf.Tensor, values: tf.Tensor) -> tf.Tensor:
        """Connects rows to the anchor, so that a tape records the lookup."""
        if keys.shape.rank is None:
            # The gradient needs the rows' width, which a shape of unknown rank does not have.
            dim = self._table.spec.dim
            rows = self._anchored(tf.reshape(keys, [-1]), tf.reshape(values, [-1, dim]))
            return tf.reshape(rows, tf.shape(values))
        anchors = self._anchors()
        return library.de_embedding_anchor(anchors[0], keys, values) if anchors else values

    def _checked_ids(self, keys: TensorLike) -> tf.Tensor:
        table = self._table
        if (
            isinstance(keys, tf.Tensor)
            and keys.dtype == table.spec.key_dtype
            and "dense" in table.kinds_of_ids
        ):
            return keys
        return keys_and_values.checked_keys(keys, table)
