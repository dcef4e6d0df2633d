"""Finds the ids of a layer's input that are not padding."""

from __future__ import annotations

import numbers
from typing import Any

import tensorflow as tf

from de_core.base.checks import received
from de_core.base.keras import LEGACY, is_symbolic, keras
from de_core.base.types import Id, Ids, Rows
from de_core.lookup.segments import flat_values


def checked_key(mask_key: Id | None, key_dtype: tf.DType) -> int | str | None:
    """Returns the padding id as a JSON value for a layer's config: None, int or str."""
    if mask_key is None:
        return None
    given: Any = mask_key.numpy() if hasattr(mask_key, "numpy") else mask_key
    if key_dtype == tf.string and isinstance(given, (str, bytes)):
        return tf.compat.as_str(given)
    whole = isinstance(given, numbers.Integral) and not isinstance(given, bool)
    if key_dtype == tf.string or not whole:
        raise TypeError(
            f"`mask_key` must be None or an id of the layer's `key_dtype`, {key_dtype.name}. "
            + received(mask_key=mask_key)
        )
    if not key_dtype.min <= given <= key_dtype.max:
        raise ValueError(
            f"`mask_key` must be in the range of the layer's `key_dtype`, {key_dtype.name}. "
            + received(mask_key=mask_key)
        )
    return int(given)


def not_padding(ids: Ids, mask_key: int | str | None, mask: Rows | None) -> Rows | None:
    """Returns True for each id that is not padding, a bool tensor of the shape of `ids`.

    `ids` may be a `keras.KerasTensor`. Padding is the id `mask_key`, and where `mask` is False.
    Returns None if neither is given.

    Raises:
        ValueError: `mask` is not bool, or has another shape.
    """
    if (
        isinstance(mask, tf.Tensor)
        and isinstance(ids, tf.Tensor)
        and (mask.dtype != tf.bool or not mask.shape.is_compatible_with(ids.shape))
    ):
        raise ValueError(
            "`mask` must be a bool tensor with the shape of the ids. Received: "
            f"mask.dtype={mask.dtype.name}, mask.shape={mask.shape}, ids.shape={ids.shape}."
        )
    if mask_key is None:
        return mask
    if is_symbolic(ids):
        real = _NotEqual(mask_key)(ids)
        return real if mask is None else keras.ops.logical_and(real, mask)
    if isinstance(ids, tf.SparseTensor):
        mask = mask if mask is None else flat_values(mask)
        return ids.with_values(not_padding(ids.values, mask_key, mask))
    real = tf.not_equal(ids, tf.cast(mask_key, ids.dtype))
    return real if mask is None else tf.logical_and(real, mask)


if not LEGACY:

    @keras.saving.register_keras_serializable(package="de_core")
    class _NotEqual(keras.Operation):
        """Compares ids with one id. Accepts strings and Keras symbolic tensors."""

        def __init__(self, key: int | str) -> None:
            super().__init__()
            self._key = key

        def call(self, ids: Ids) -> tf.Tensor:
            return tf.not_equal(ids, tf.cast(self._key, ids.dtype))

        def compute_output_spec(self, ids: keras.KerasTensor) -> keras.KerasTensor:
            return keras.KerasTensor(ids.shape, dtype="bool")
