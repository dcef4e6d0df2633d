"""The Keras layer that pools all ids of an example into one row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from de_core.base.checks import received
from de_core.base.keras import keras
from de_core.base.types import DTypeLike, Ids, Rows
from de_core.layers.combining import Combiner
from de_core.layers.embedding import Embedding
from de_core.lookup.segments import by_first_dimension, by_last_dimension


@keras.saving.register_keras_serializable(package="de_core")
class SquashedEmbedding(Embedding):
    """Pools the rows of all ids of an example into one row, over all dimensions but the first.

    Args:
        dim: See `Embedding`, also for the arguments that are not described here.
        key_dtype: `tf.int64`, `tf.int32` or `tf.string`.
        value_dtype: Dtype of the rows in the table.
        combiner: How to pool the rows; not None.
        *args: See `Embedding`.
        **kwargs: See `Embedding`.

    Raises:
        TypeError: As for `Embedding`.
        ValueError: As for `Embedding`, or `combiner` is None.

    Input shape:
        [batch, …], dense, ragged or sparse. Or [n], the ids of a single example.

    Output shape:
        [batch, dim], or [dim] for a single example.

    Example:
    >>> layer = SquashedEmbedding(2, initializer="ones")
    >>> layer(tf.constant([[[7, 9], [1, 3]]], tf.int64)).numpy().tolist()
    [[4.0, 4.0]]
    """

    def __init__(
        self,
        dim: int,
        key_dtype: DTypeLike = tf.int64,
        value_dtype: DTypeLike = tf.float32,
        combiner: Combiner = "sum",
        *args: Any,
        **kwargs: Any,
    ) -> None:
        if combiner is None:
            raise ValueError(f"`combiner` must not be None here. {received(combiner=combiner)}")
        super().__init__(dim, key_dtype, value_dtype, combiner, *args, **kwargs)

    def _pooled(self, ids: Ids, weights: Ids | None, mask: Rows | None) -> Rows:
        self._check_rank(ids)
        if ids.shape.rank == 1:
            rows = self._pool(self._without_padding(by_last_dimension(ids, weights), ids, mask))
            return tf.reshape(rows, [self.table.dim])
        rows = self._pool(self._without_padding(by_first_dimension(ids, weights), ids, mask))
        return tf.ensure_shape(rows, [ids.shape[0], self.table.dim])

    def compute_output_shape(self, input_shape: Sequence[int | None]) -> tuple[int | None, ...]:
        """Returns the shape of the output for ids of `input_shape`."""
        batch = tuple(input_shape)[:1] if len(input_shape) > 1 else ()
        return (*batch, self.table.dim)
