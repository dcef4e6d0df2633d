"""The Keras layer over a dynamic table."""

from __future__ import annotations

import numbers
import warnings
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from de_core.base.checks import received
from de_core.base.keras import dtype_name, global_policy, is_symbolic, keras, only_builds
from de_core.base.plain_python import plain_python
from de_core.layers import combining, masking, revival, table_arguments
from de_core.lookup.lookup import embedding_lookup_unique
from de_core.lookup.segments import Segments, by_last_dimension, flat_values, with_outer_dimensions
from de_core.tables import initial_rows
from de_core.tables.keys_and_values import note_kind, placeholder_keys
from de_core.tables.spec import KEY_DTYPES
from de_core.variable.variable import Variable


@keras.saving.register_keras_serializable(package="de_core")
class Embedding(keras.layers.Layer):
    """Turns ids into rows of a table that grows with the ids it is trained on.

    Works in `Sequential`, functional and subclassed models of Keras 3 and, under
    `TF_USE_LEGACY_KERAS=1`, of tf_keras. Compile them with
    `de.DynamicEmbeddingOptimizer(optimizer)`: any other optimizer is refused at the first step.
    Each layer has a table of its own, `table`; call one layer on several inputs to share its rows.

    Args:
        dim: Values a row, 1 to 4096.
        key_dtype: `tf.int64`, `tf.int32` or `tf.string`.
        value_dtype: Of the rows.
        combiner: None to return a row for each id; "sum", "mean", "sqrtn", "min", "max", "prod",
            "std" or a function of rows [n, dim] to pool the rows of the ids along the last axis of
            the input, masked ids left out. The first three never hold the rows of all ids at once.
        initializer: What an unknown id reads as; see `de.Variable`. "auto" is "uniform", between
            -0.05 and 0.05, as in `keras.layers.Embedding`; for values that are not floating-point
            it is zeros.
        devices: One table is made on each.
        name: Of the layer and its table; unique if None.
        with_unique: Whether to read each distinct id of the input once, which is worth it where ids
            repeat and rows are long. Pooled ids are read as they come.
        short_file_name: Kept for compatibility.
        mask_key: The id that stands for padding, such as 0 or ""; None if there is none. Layers
            that follow then get a mask.
        max_norm: If given, rows longer than this are scaled down to it when they are looked up.
        embeddings_regularizer: A Keras regularizer of the rows that an input touches, each distinct
            id's once. (A regularizer of all rows would make every step as long as the table.)
        **kwargs: Of `de.Variable`: `partitioner`, `init_size`, …; and of `keras.layers.Layer`:
            `dtype`, `trainable`, …

    Raises:
        TypeError: An argument of a wrong type or dtype, or ids that are not of `key_dtype`.
        ValueError: An argument out of range.

    Input shape:
        Any, also ragged; sparse with a `combiner`.

    Output shape:
        ids.shape + [dim], or ids.shape[:-1] + [dim] with a combiner.

    Example:
    >>> layer = Embedding(2, initializer="ones")
    >>> layer(tf.constant([[7, 9]], tf.int64)).shape
    TensorShape([1, 2, 2])
    """

    #: What `initializer` means for floating-point values where it is "auto", and where it is None.
    _auto_initializer: str = "uniform"
    _no_initializer: str | None = None

    def __init__(
        self,
        dim: int,
        key_dtype: Any = tf.int64,
        value_dtype: Any = tf.float32,
        combiner: combining.Combiner | None = None,
        initializer: Any = "auto",
        devices: Sequence[str] | None = None,
        name: str | None = None,
        with_unique: bool = False,
        short_file_name: bool = False,
        *,
        mask_key: Any = None,
        max_norm: float | None = None,
        embeddings_regularizer: Any = None,
        **kwargs: Any,
    ) -> None:
        combiner = combining.checked(combiner)
        value_dtype = tf.as_dtype(value_dtype)
        of_table = table_arguments.taken_from(kwargs)
        policy = global_policy()
        if value_dtype.is_floating and policy.compute_dtype == policy.variable_dtype:
            kwargs.setdefault("dtype", value_dtype.name)  # rows come out as they are stored
        super().__init__(name=name, **{**kwargs, "autocast": False})  # ids are never cast
        self.combiner = combiner
        self.with_unique = bool(with_unique)
        self.max_norm = _checked_norm(max_norm)
        self.embeddings_regularizer = keras.regularizers.get(embeddings_regularizer)
        self.supports_masking = True
        self.supports_jit = False  # XLA cannot run the ops
        self._of_table = {**of_table, "short_file_name": bool(short_file_name)}
        self.table = Variable(
            key_dtype=key_dtype,
            value_dtype=value_dtype,
            dim=dim,
            devices=devices,
            name=self.name,
            initializer=self._initializer_of(initializer, value_dtype),
            trainable=self.trainable,
            regularizer=self.embeddings_regularizer,
            **self._of_table,
        )
        self.mask_key = masking.checked_key(mask_key, self.table.key_dtype)
        self._takes: set[str] = set()  # kinds of the inputs of functional models
        self.built = True

    @property
    def params(self) -> Variable:
        """The table, by the name it has in the reference API."""
        return self.table

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

    @plain_python
    def call(self, ids: Any, mask: Any = None) -> Any:
        """Looks ids up.

        Args:
            ids: Any shape. An int64 table takes int32 ids too: nothing is lost.
            mask: Which ids count, ids.shape; None for all.
        """
        ids = self._as_keys(ids)
        if self.embeddings_regularizer is not None:
            self._add_regularization(ids)
        if self.combiner is None:
            rows = self._rows_of(ids)
        else:
            self._check_rank(ids)
            segments = self._counting(by_last_dimension(ids), ids, mask)
            rows = with_outer_dimensions(ids, self._pool(segments), self.table.dim)
        return self._cast(rows)

    def compute_mask(self, ids: Any, mask: Any = None) -> Any:
        """Returns which outputs count: those of other ids than `mask_key`; pooled ones all do."""
        if self.combiner is not None or (mask is None and self.mask_key is None):
            return None
        return self._which_count(ids if is_symbolic(ids) else self._as_keys(ids), mask)

    def compute_output_shape(self, input_shape: Sequence[int | None]) -> tuple[int | None, ...]:
        """Returns the shape of the output for ids of `input_shape`."""
        kept = tuple(input_shape) if self.combiner is None else tuple(input_shape)[:-1]
        return (*kept, self.table.dim)

    def compute_output_spec(self, ids: Any, mask: Any = None) -> Any:
        """Returns shape and dtype of the output for a symbolic input."""
        del mask
        self._check_dtype(ids)
        self._takes.add(_kind(ids))
        if self.combiner is not None:
            self._check_rank(ids)
        shape = self.compute_output_shape(ids.shape)
        ragged = getattr(ids, "ragged", False) and len(shape) > 2
        return keras.KerasTensor(shape, dtype=self._output_dtype, ragged=ragged)

    def get_config(self) -> dict[str, Any]:
        """Returns what `from_config` makes an equal layer of, without the rows."""
        table = self.table
        return {
            **super().get_config(),
            "dim": table.dim,
            "key_dtype": table.key_dtype.name,
            "value_dtype": table.value_dtype.name,
            "combiner": table_arguments.serialized(self.combiner),
            "initializer": table_arguments.serialized(
                initial_rows.with_fans(table.initializer, table.init_size, table.dim)
            ),
            "devices": table.devices,
            "with_unique": self.with_unique,
            "mask_key": self.mask_key,
            "max_norm": self.max_norm,
            "embeddings_regularizer": table_arguments.serialized(self.embeddings_regularizer),
            **{name: table_arguments.serialized(value) for name, value in self._of_table.items()},
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Embedding:
        """Makes a layer of `get_config`'s result, with an empty table."""
        revival.leave_to_saved_functions()
        kept = {name: config[name] for name in ("dtype",) if name in config}
        restored = {name: table_arguments.deserialized(value) for name, value in config.items()}
        if "initializer" in restored:
            # Older files name a variance scaling, whose fans were those of one row.
            restored["initializer"] = initial_rows.with_fans(
                restored["initializer"], 1, restored["dim"]
            )
        return cls(**{**restored, **kept})

    def _initializer_of(self, given: Any, value_dtype: tf.DType) -> Any:
        auto = isinstance(given, str) and given == "auto"
        if not auto and given is not None:
            return given
        if not value_dtype.is_floating:
            return None
        return self._auto_initializer if auto else self._no_initializer

    @property
    def _output_dtype(self) -> str:
        stored = self.table._table.spec.value_dtype
        return str(self.dtype_policy.compute_dtype if stored.is_floating else stored.name)

    def _cast(self, rows: Any) -> Any:
        return tf.cast(rows, self._output_dtype)

    def _rows_of(self, ids: Any) -> Any:
        """Returns a row for each id."""
        if isinstance(ids, tf.SparseTensor):
            raise ValueError(
                "Sparse ids need a `combiner`: only pooled rows have a dense shape. "
                + received(combiner=None)
            )
        if self.with_unique:
            return embedding_lookup_unique(self.table, ids, max_norm=self.max_norm)
        return self.table._rows.lookup_scaled(ids, self.max_norm)

    def _pool(self, segments: Segments) -> tf.Tensor:
        return combining.pool(self.table, segments, self.combiner, self.max_norm)

    def _counting(self, segments: Segments, ids: Any, mask: Any) -> Segments:
        """Leaves masked ids out of segments, which are made of all of `ids`."""
        mask = self._which_count(ids, mask)
        return segments if mask is None else segments.where(flat_values(mask))

    def _which_count(self, ids: Any, mask: Any) -> Any:
        mask = masking.checked(mask, ids)
        if self.mask_key is None:
            return mask
        return masking.which_count(ids, self.mask_key, mask)

    def _add_regularization(self, ids: Any) -> None:
        loss = self.table.regularization_loss(flat_values(ids))
        self.add_loss(tf.cast(loss, keras.backend.floatx()))  # Keras adds up losses of one dtype

    @staticmethod
    def _check_rank(ids: Any) -> None:
        if tf.TensorShape(ids.shape).rank == 0:
            raise ValueError(
                f"A layer with a `combiner` needs ids of rank 1 or more. {received(ids=ids)}"
            )

    def _check_dtype(self, ids: Any) -> None:
        wanted = self.table.key_dtype.name
        given = dtype_name(ids.dtype)
        if given != wanted and (given, wanted) != ("int32", "int64"):
            other = ""
            if given in [each.name for each in KEY_DTYPES]:
                other = f", or the layer with key_dtype={given!r}"
            elif tf.is_symbolic_tensor(ids):
                other = (
                    ". Keras takes all inputs of a subclassed model for floats when it saves one: "
                    "give `input_signature` to `model.export`, and to the class for "
                    f"tf.saved_model.save an `input_dtype` of {wanted!r}"
                )
            raise TypeError(
                f"The ids of layer {self.name!r} must be {wanted}: make its input with "
                f"keras.Input(..., dtype={wanted!r}){other}. "
                f"Received: ids.dtype={given} (of type {type(ids).__name__})."
            )

    def _as_keys(self, ids: Any) -> Any:
        key_dtype = self.table._table.spec.key_dtype
        if isinstance(ids, tf.Tensor) and ids.dtype == key_dtype and not self._takes:
            return ids
        if not isinstance(ids, (tf.RaggedTensor, tf.SparseTensor)) and not is_symbolic(ids):
            ids = tf.convert_to_tensor(ids)
        if not is_symbolic(ids) and only_builds(ids):
            return placeholder_keys(ids, self.table._table)
        self._check_dtype(ids)
        note_kind(_kind(ids), self.table._table)
        self._warn_of_padding(ids)
        return tf.cast(ids, key_dtype)

    def _warn_of_padding(self, ids: Any) -> None:
        """Warns where a function, such as Keras makes to export, takes ragged ids as dense ones."""
        padded = self._takes and "dense" not in self._takes and _kind(ids) == "dense"
        if padded and self.mask_key is None and tf.is_symbolic_tensor(ids):
            warnings.warn(
                f"The ids of layer {self.name!r} are dense here, and {min(self._takes)} in the "
                "model: ids that pad them count like any other. Pass `mask_key`, or export with "
                "de.export, which takes ragged and sparse inputs as they are.",
                stacklevel=2,
            )


def _kind(ids: Any) -> str:
    """Returns "ragged", "sparse" or "dense", of a tensor or of what stands for one."""
    for kind, tensor_class in (("ragged", tf.RaggedTensor), ("sparse", tf.SparseTensor)):
        if isinstance(ids, tensor_class) or getattr(ids, kind, False):
            return kind
    return "dense"


def _checked_norm(max_norm: Any) -> float | None:
    """Returns the `max_norm` of a layer, once and not in each call refused if it is none."""
    if max_norm is None:
        return None
    if isinstance(max_norm, bool) or not isinstance(max_norm, numbers.Real):
        raise TypeError(f"`max_norm` must be None or a number. {received(max_norm=max_norm)}")
    if not float(max_norm) > 0:
        raise ValueError(f"`max_norm` must be None or above 0. {received(max_norm=max_norm)}")
    return float(max_norm)
