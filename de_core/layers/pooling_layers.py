"""The Keras layers that pool the ids of an example into one row, or into one row per field."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from de_core.base.checks import check_integer, received
from de_core.base.keras import keras
from de_core.base.types import DTypeLike, Ids, Rows, TensorLike
from de_core.layers import arguments, id_inputs
from de_core.layers.combining import Combiner
from de_core.layers.embedding import Embedding
from de_core.lookup.segments import Segments, by_first_dimension, by_last_dimension, flat_values


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


@keras.saving.register_keras_serializable(package="de_core")
class FieldWiseEmbedding(Embedding):
    """Pools the rows of each example by field. All fields share one table.

    Args:
        dim: See `Embedding`, also for the arguments that are not described here.
        nslots: Number of fields.
        slot_map_fn: `f(ids)` that returns the field of each id: integers in [0, nslots) of the
            shape of `ids`. To save a model with this layer, decorate the function with
            `keras.saving.register_keras_serializable()`.
        key_dtype: `tf.int64`, `tf.int32` or `tf.string`.
        value_dtype: Dtype of the rows in the table.
        combiner: How to pool the rows of a field; not None.
        *args: See `Embedding`.
        **kwargs: See `Embedding`.

    Raises:
        TypeError: As for `Embedding`, or `slot_map_fn` is not a function, or `nslots` is not a
            whole number.
        ValueError: As for `Embedding`, or `nslots` is not positive, or `combiner` is None.

    Input shape:
        [batch, …], dense, ragged or sparse.

    Output shape:
        [batch, nslots, dim]; zeros for a field without ids.

    Example:
    >>> layer = FieldWiseEmbedding(1, 3, lambda ids: ids % 3, initializer="ones")
    >>> layer(tf.constant([[23, 12, 0]], tf.int64)).numpy().tolist()
    [[[2.0], [0.0], [1.0]]]
    """

    nslots: int
    slot_map_fn: Callable[[tf.Tensor], TensorLike]

    def __init__(
        self,
        dim: int,
        nslots: int,
        slot_map_fn: Callable[[tf.Tensor], TensorLike] | None = None,
        key_dtype: DTypeLike = tf.int64,
        value_dtype: DTypeLike = tf.float32,
        combiner: Combiner = "sum",
        *args: Any,
        **kwargs: Any,
    ) -> None:
        if not callable(slot_map_fn):
            raise TypeError(
                "`slot_map_fn` must be a function of ids that returns the field of each id. "
                + received(slot_map_fn=slot_map_fn)
            )
        check_integer("nslots", nslots, 1)
        if combiner is None:
            raise ValueError(f"`combiner` must not be None here. {received(combiner=combiner)}")
        super().__init__(dim, key_dtype, value_dtype, combiner, *args, **kwargs)
        self.nslots = int(nslots)
        self.slot_map_fn = slot_map_fn

    def _pooled(self, ids: Ids, weights: Ids | None, mask: Rows | None) -> Rows:
        if ids.shape.rank is not None and ids.shape.rank < 2:
            raise ValueError(
                "The ids of a field-wise layer must be of shape [batch, …]. Received: "
                f"ids.shape={ids.shape}."
            )
        which = id_inputs.not_padding(ids, self.mask_key, mask)
        rows = self._pool(self._by_field(ids, by_first_dimension(ids, weights), which))
        rows = tf.reshape(rows, [-1, self.nslots, self.table.dim])
        return tf.ensure_shape(rows, [ids.shape[0], self.nslots, self.table.dim])

    def compute_output_shape(self, input_shape: Sequence[int | None]) -> tuple[int | None, ...]:
        """Returns the shape of the output for ids of `input_shape`."""
        return (input_shape[0], self.nslots, self.table.dim)

    def get_config(self) -> dict[str, Any]:
        """Returns the arguments for `from_config`, without the rows."""
        return {
            **super().get_config(),
            "nslots": self.nslots,
            "slot_map_fn": arguments.serialized(self.slot_map_fn),
        }

    def _by_field(self, ids: Ids, examples: Segments, which: Rows | None) -> Segments:
        dense = isinstance(ids, tf.Tensor)
        wanted = ids.shape if dense else examples.ids.shape
        returned = self.slot_map_fn(ids if dense else examples.ids)
        try:
            slots = tf.convert_to_tensor(returned)
        except (TypeError, ValueError) as error:
            raise TypeError(
                "`slot_map_fn` must return a tensor with one whole number per id, of shape "
                f"{wanted}. {received(returned=returned)}"
            ) from error
        if not slots.dtype.is_integer or not slots.shape.is_compatible_with(wanted):
            raise ValueError(
                "`slot_map_fn` must return one whole number per id. Received: "
                f"dtype={slots.dtype.name}, shape={slots.shape} for ids of shape {wanted}."
            )
        if not slots.shape.is_fully_defined():  # a scalar would be broadcast to all ids
            tf.debugging.assert_equal(
                tf.size(slots),
                tf.size(examples.ids),
                "`slot_map_fn` must return one whole number per id. Received: another number.",
            )
        slots = tf.reshape(tf.cast(slots, tf.int64), [-1])
        outside = tf.logical_or(slots < 0, slots >= self.nslots)
        if which is not None:
            outside = tf.logical_and(outside, flat_values(which))
        check = tf.debugging.Assert(
            tf.logical_not(tf.reduce_any(outside)),
            [
                f"`slot_map_fn` must return fields in [0, {self.nslots}). Received:",
                tf.boolean_mask(slots, outside),
            ],
        )
        # In eager mode the check has run already and is None.
        with tf.control_dependencies([] if check is None else [check]):
            segments = examples.of_ids() * self.nslots + slots
        if which is not None:
            segments = tf.where(flat_values(which), segments, -1)
        return examples.regrouped(segments, examples.count() * self.nslots)
