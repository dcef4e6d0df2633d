"""The Keras 3 layer over a dynamic table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from de_core._keras import dtype_name, global_policy, keras
from de_core.config import received
from de_core.layers import masking
from de_core.lookup import embedding_lookup
from de_core.sharding import Partitioner, default_partition_fn
from de_core.variable import Variable

_COMBINERS = (None, "sum", "mean", "sqrtn")


@keras.saving.register_keras_serializable(package="de_core")
class Embedding(keras.layers.Layer):
    """Turns ids into rows of a table that grows with the ids it is trained on.

    Works in `Sequential`, functional and subclassed models. Compile them with
    `de.DynamicEmbeddingOptimizer(optimizer)`: any other optimizer is refused at the first step.
    Each layer has a table of its own, `table`; call one layer on several inputs to share its rows.

    Args:
        dim: Values a row, 1 to 4096.
        key_dtype: `tf.int64`, `tf.int32` or `tf.string`.
        value_dtype: Of the rows.
        combiner: None to return a row for each id; "sum", "mean" or "sqrtn" to pool the rows of the
            ids along the last axis of the input, masked ids left out.
        initializer: What an unknown id reads as; see `de.Variable`.
        devices: One table is made on each.
        name: Of the layer and its table; unique if None.
        partitioner: Divides the keys among several tables.
        init_size: Rows to make room for at once.
        mask_key: The id that stands for padding, such as 0 or ""; None if there is none. Layers
            that follow then get a mask.
        **kwargs: Of `keras.layers.Layer`: `dtype`, `trainable`, …

    Raises:
        TypeError: An argument of a wrong type or dtype, or ids that are not of `key_dtype`.
        ValueError: An argument out of range.

    Input shape:
        Any, also ragged.

    Output shape:
        ids.shape + [dim], or ids.shape[:-1] + [dim] with a combiner.

    Example:
    >>> layer = Embedding(2, initializer="ones")
    >>> layer(tf.constant([[7, 9]], tf.int64)).shape
    TensorShape([1, 2, 2])
    """

    def __init__(
        self,
        dim: int,
        key_dtype: Any = tf.int64,
        value_dtype: Any = tf.float32,
        combiner: str | None = None,
        initializer: Any = None,
        devices: Sequence[str] | None = None,
        name: str | None = None,
        *,
        partitioner: Partitioner | None = default_partition_fn,
        init_size: int = 0,
        mask_key: Any = None,
        **kwargs: Any,
    ) -> None:
        if combiner not in _COMBINERS:
            raise ValueError(
                f"`combiner` must be one of {', '.join(map(str, _COMBINERS))}. "
                + received(combiner=combiner)
            )
        value_dtype = tf.as_dtype(value_dtype)
        policy = global_policy()
        if value_dtype.is_floating and policy.compute_dtype == policy.variable_dtype:
            kwargs.setdefault("dtype", value_dtype.name)  # rows come out as they are stored
        super().__init__(name=name, **{**kwargs, "autocast": False})  # ids are never cast
        self.combiner = combiner
        self.mask_key = mask_key
        self.supports_masking = True
        self.supports_jit = False  # XLA cannot run the ops
        self.table = Variable(
            key_dtype=key_dtype,
            value_dtype=value_dtype,
            dim=dim,
            devices=devices,
            partitioner=partitioner,
            name=self.name,
            initializer=initializer,
            trainable=self.trainable,
            init_size=init_size,
        )
        self.built = True

    @property
    def compute_dtype(self) -> str:
        """Dtype that `Sequential` makes its input of: the keys', or ids would become floats."""
        return str(self.table.key_dtype.name)

    @property
    def variable_dtype(self) -> str:
        """The same: where the two differ Keras casts weights, and here there are none to cast."""
        return self.compute_dtype

    @property
    def dtype(self) -> str:
        """Dtype of the values."""
        return str(self.table.value_dtype.name)

    def call(self, ids: Any, mask: Any = None) -> Any:
        """Looks ids up.

        Args:
            ids: Any shape. An int64 table takes int32 ids too: nothing is lost.
            mask: Which ids count, ids.shape; None for all.
        """
        ids = self._as_keys(ids)
        rows = embedding_lookup(self.table, ids)
        if self.combiner is not None:
            rows = _pooled(rows, self._which_count(ids, mask), self.combiner)
        return tf.cast(rows, self._output_dtype) if self._casts else rows

    def compute_mask(self, ids: Any, mask: Any = None) -> Any:
        """Returns which outputs count: those of other ids than `mask_key`; pooled ones all do."""
        return None if self.combiner is not None else self._which_count(ids, mask)

    def compute_output_shape(self, input_shape: Sequence[int | None]) -> tuple[int | None, ...]:
        """Returns the shape of the output for ids of `input_shape`."""
        kept = tuple(input_shape) if self.combiner is None else tuple(input_shape)[:-1]
        return (*kept, self.table.dim)

    def compute_output_spec(self, ids: Any, mask: Any = None) -> Any:
        """Returns shape and dtype of the output for a symbolic input."""
        del mask
        self._check_dtype(ids)
        if self.combiner is not None and len(ids.shape) == 0:
            raise ValueError(
                f"A layer with a `combiner` needs ids of rank 1 or more. {received(ids=ids)}"
            )
        return keras.KerasTensor(self.compute_output_shape(ids.shape), dtype=self._output_dtype)

    def get_config(self) -> dict[str, Any]:
        """Returns what `from_config` makes an equal layer of, without the rows."""
        table = self.table
        partitioner = table.partition_fn
        return {
            **super().get_config(),
            "dim": table.dim,
            "key_dtype": table.key_dtype.name,
            "value_dtype": table.value_dtype.name,
            "combiner": self.combiner,
            "initializer": _serialized(table.initializer),
            "devices": table.devices,
            "partitioner": (
                None
                if partitioner is default_partition_fn
                else keras.saving.serialize_keras_object(partitioner)
            ),
            "init_size": table.init_size,
            "mask_key": self.mask_key,
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Embedding:
        """Makes a layer of `get_config`'s result, with an empty table."""
        restored = {
            name: keras.saving.deserialize_keras_object(config[name])
            for name in ("initializer", "partitioner")
            if isinstance(config.get(name), dict)
        }
        return cls(**{**config, **restored})

    @property
    def _casts(self) -> bool:
        return bool(self.table.value_dtype.is_floating)

    @property
    def _output_dtype(self) -> str:
        return str(self.dtype_policy.compute_dtype if self._casts else self.table.value_dtype.name)

    def _which_count(self, ids: Any, mask: Any) -> Any:
        if self.mask_key is None:
            return mask
        return masking.which_count(ids, self.mask_key, mask)

    def _check_dtype(self, ids: Any) -> None:
        wanted = self.table.key_dtype.name
        given = dtype_name(ids.dtype)
        if given != wanted and (given, wanted) != ("int32", "int64"):
            raise TypeError(
                f"The ids of layer {self.name!r} must be {wanted}: make its input with "
                f"keras.Input(..., dtype={wanted!r}), or the layer with key_dtype={given!r} where "
                f"that fits. Received: ids.dtype={given} (of type {type(ids).__name__})."
            )

    def _as_keys(self, ids: Any) -> Any:
        if not isinstance(ids, tf.RaggedTensor):
            ids = tf.convert_to_tensor(ids)
        self._check_dtype(ids)
        return tf.cast(ids, self.table.key_dtype)


def _pooled(rows: Any, mask: Any, combiner: str) -> tf.Tensor:
    """Pools rows [..., n, dim] along n into [..., dim]; of no rows the result is zeros."""
    weights = tf.ones_like(rows[..., :1]) if mask is None else tf.cast(mask, rows.dtype)
    if mask is not None:
        weights = tf.expand_dims(weights, -1)
        rows = rows * weights
    total = tf.reduce_sum(rows, axis=-2)
    if combiner == "sum":
        return total
    count = tf.reduce_sum(weights, axis=-2)
    return tf.math.divide_no_nan(total, count if combiner == "mean" else tf.sqrt(count))


def _serialized(initializer: Any) -> Any:
    if initializer is None or isinstance(initializer, (str, bool, int, float)):
        return initializer
    if isinstance(initializer, (np.ndarray, np.generic, list, tuple)) or tf.is_tensor(initializer):
        return np.asarray(initializer).tolist()
    return keras.saving.serialize_keras_object(initializer)
