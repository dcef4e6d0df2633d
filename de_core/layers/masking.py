"""Which ids of a layer's input count: all but padding."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from de_core._keras import LEGACY, is_symbolic, keras


def which_count(ids: Any, mask_key: Any, mask: Any) -> Any:
    """Returns which ids are not padding, a bool tensor of the shape of `ids`.

    Args:
        ids: A tensor, or what stands for one while Keras 3 only infers shapes.
        mask_key: The id that stands for padding.
        mask: Which of them count besides, or None for all.
    """
    if is_symbolic(ids):
        real = _NotEqual(mask_key)(ids)
        return real if mask is None else keras.ops.logical_and(real, mask)
    real = tf.not_equal(ids, tf.cast(mask_key, ids.dtype))
    return real if mask is None else tf.logical_and(real, mask)


if not LEGACY:

    @keras.saving.register_keras_serializable(package="de_core")
    class _NotEqual(keras.Operation):
        """Compares with one id, also a string, also while Keras only infers shapes."""

        def __init__(self, key: Any) -> None:
            super().__init__()
            self._key = key

        def call(self, ids: Any) -> tf.Tensor:
            return tf.not_equal(ids, tf.cast(self._key, ids.dtype))

        def compute_output_spec(self, ids: Any) -> Any:
            return keras.KerasTensor(ids.shape, dtype="bool")
