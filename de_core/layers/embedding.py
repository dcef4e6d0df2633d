"""The Keras layer over a dynamic table."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NoReturn, cast

import numpy as np
import tensorflow as tf

from de_core.base.checks import received
from de_core.base.keras import global_policy, is_symbolic, keras, only_builds
from de_core.base.no_autograph import no_autograph
from de_core.base.types import DTypeLike, Id, Ids, InitializerLike, RegularizerLike, Rows
from de_core.checkpoint import tfra_refusal
from de_core.layers import arguments, combining, id_inputs
from de_core.lookup.lookup import embedding_lookup_unique
from de_core.lookup.segments import (
    Segments,
    by_last_dimension,
    flat_values,
    kind_of,
    with_outer_dimensions,
)
from de_core.tables import initial_rows
from de_core.tables.keys_and_values import note_kind, placeholder_keys
from de_core.variable.variable import Variable

if TYPE_CHECKING:
    from typing_extensions import Self


@keras.saving.register_keras_serializable(package="de_core")
class Embedding(keras.layers.Layer):
    """Turns ids into rows of a table that grows while it is trained.

    Works in `Sequential`, functional and subclassed models of Keras 3 and, with
    `TF_USE_LEGACY_KERAS=1`, of tf_keras. Pass `optimizer`, such as "adam", to train the table under
    any optimizer of the model. Without it, compile the model with
    `de.DynamicEmbeddingOptimizer(optimizer)`: any other optimizer fails at its first step. Each
    layer has its own table, `table`. Call one layer on several inputs to share its rows.

    Args:
        dim: Values per row, 1 to 4096. Always pass it.
        key_dtype: `tf.int64`, `tf.int32` or `tf.string`.
        value_dtype: Dtype of the rows in the table.
        combiner: How to pool the rows along the last axis of the ids, without masked ids: "sum",
            "mean", "sqrtn", "min", "max", "prod", "std", or a function of rows [n, dim] that
            returns a row [dim]. None to return a row for each id. "sum", "mean" and "sqrtn" need
            less memory than the others, because they never store all rows at once.
        initializer: Defines the row of an unknown id; see `de.Variable`. "auto" means uniform
            between -0.05 and 0.05, as in `keras.layers.Embedding`, or zeros if `value_dtype` is not
            floating point.
        devices: Device names. Each device holds one shard of the table.
        name: Name of the layer and its table; None for a generated unique name.
        with_unique: Whether to read each distinct id only once. This is faster if ids repeat often
            and rows are long. Ignored with a `combiner`.
        mask_key: The id that means padding, such as 0 or ""; None for no padding. Following layers
            get a mask.
        max_norm: Greatest L2 norm of a row in the result; longer rows are scaled down. None for no
            limit.
        embeddings_regularizer: A Keras regularizer. It is applied to the rows of the distinct ids
            of each input, without masked ids, not to all rows of the table.
        **kwargs: Further arguments of `de.Variable`, such as `optimizer` and `init_size`, and of
            `keras.layers.Layer`, such as `dtype` and `trainable`. Also the names of
            `keras.layers.Embedding`: `output_dim` for `dim`, `embeddings_initializer` for
            `initializer`, `mask_zero` for a `mask_key` of 0, and `input_dim` for `init_size`,
            which limits nothing.

    Raises:
        TypeError: An argument has a wrong type or dtype, or ids have another dtype than
            `key_dtype`.
        ValueError: An argument is out of range.

    Input shape:
        Any shape, dense or ragged. Also sparse if there is a `combiner`.

    Output shape:
        ids.shape + [dim], or ids.shape[:-1] + [dim] with a `combiner`.

    Example:
    >>> layer = Embedding(2, initializer="ones")
    >>> layer(tf.constant([[7, 9]], tf.int64)).shape
    TensorShape([1, 2, 2])
    """

    #: Initializers of floating-point values for the arguments "auto" and None.
    _auto_initializer: str = "uniform"
    _no_initializer: str | None = None
    _table_class = Variable

    def __init__(
        self,
        dim: int | None = None,
        key_dtype: DTypeLike = tf.int64,
        value_dtype: DTypeLike = tf.float32,
        combiner: combining.Combiner | None = None,
        initializer: InitializerLike = "auto",
        devices: Sequence[str] | None = None,
        name: str | None = None,
        with_unique: bool = False,
        *,
        mask_key: Id | None = None,
        max_norm: float | None = None,
        embeddings_regularizer: RegularizerLike = None,
        **kwargs: Any,
    ) -> None:
        combiner = combining.checked(combiner)
        own = arguments.from_keras(
            kwargs, key_dtype, dim=dim, initializer=initializer, mask_key=mask_key
        )
        value_dtype = tf.as_dtype(value_dtype)
        of_table = arguments.for_table(kwargs)
        policy = global_policy()
        if value_dtype.is_floating and policy.compute_dtype == policy.variable_dtype:
            kwargs.setdefault("dtype", value_dtype.name)  # return rows in their stored dtype
        super().__init__(name=name, **{**kwargs, "autocast": False})  # ids are never cast
        self.combiner = combiner
        self.with_unique = bool(with_unique)
        self.max_norm = combining.checked_norm(max_norm)
        self.embeddings_regularizer = keras.regularizers.get(embeddings_regularizer)
        self.supports_masking = True
        self.supports_jit = False  # XLA cannot run the ops
        initializer = own["initializer"]
        is_auto = isinstance(initializer, str) and initializer == "auto"
        if is_auto or initializer is None:
            initializer = self._auto_initializer if is_auto else self._no_initializer
            initializer = initializer if value_dtype.is_floating else None
        optimizer = of_table.pop("optimizer", None)
        self._of_table = of_table
        self._has_devices = devices is not None
        self.table = self._table_class(
            key_dtype=key_dtype,
            value_dtype=value_dtype,
            dim=own["dim"],
            devices=devices,
            name=self.name,
            initializer=initializer,
            trainable=self.trainable or tf.compat.v1.executing_eagerly_outside_functions(),
            regularizer=self.embeddings_regularizer,
            optimizer=optimizer,
            **self._of_table,
        )
        self.table.trainable = self.trainable  # a frozen layer may become trainable later
        self.mask_key = id_inputs.checked_key(own["mask_key"], self.table.key_dtype)
        self._input_kinds: set[str] = set()  # kinds of the symbolic inputs: dense, ragged, sparse
        self.built = True

    @property
    def embeddings(self) -> NoReturn:
        """Raises AttributeError, because a table has no matrix of all rows."""
        raise AttributeError(
            "A table has no matrix of rows: write rows by `layer.table.upsert(ids, rows)`, and "
            "read them by `layer.table.lookup(ids)` or `layer.table.export()`."
        )

    @property
    def params(self) -> Variable:
        """The table. The reference API uses this name."""
        return self.table

    def _checkpoint_adapter(self, path: str | None) -> None:
        """Refuses a checkpoint with tables of tfra. TensorFlow calls it on restore."""
        tfra_refusal.refuse(path)

    @property
    def compute_dtype(self) -> str:
        """The key dtype. `Sequential` gives its input this dtype, and ids must not be floats."""
        return str(self.table.key_dtype.name)

    @property
    def variable_dtype(self) -> str:
        """Equal to `compute_dtype`. Keras would cast weights if the two differed."""
        return self.compute_dtype

    @property
    def dtype(self) -> str:
        """Dtype of the values."""
        return str(self.table.value_dtype.name)

    @no_autograph
    def __call__(self, ids: Any, *args: Any, **kwargs: Any) -> Any:
        """Looks up ids. Takes a number, a string, or a list of them, too."""
        ids = id_inputs.plain_ids(ids, self.table.key_dtype, f"layer {self.name!r}")
        if len(args) < 2 and (mask := getattr(ids, "_keras_mask", None)) is not None:
            kwargs.setdefault("mask", mask)  # with weights, Keras passes on no mask
        return super().__call__(ids, *args, **kwargs)

    @no_autograph
    def call(self, ids: Ids, weights: Ids | None = None, mask: Rows | None = None) -> Rows:
        """Looks up ids.

        Args:
            ids: Ids of any shape. A layer with int64 keys accepts int32 ids too.
            weights: The weight of each id when rows are pooled by "sum", "mean" or "sqrtn". A
                floating-point tensor of the kind and the shape of `ids`; None for weights of 1.
            mask: True for each id that is not padding, bool, ids.shape; None for all ids.

        Raises:
            ValueError: `weights` do not fit `ids`, or the layer's `combiner` takes none.
        """
        ids = self._as_keys(ids)
        if self.embeddings_regularizer is not None:
            keys, real = flat_values(ids), id_inputs.not_padding(ids, self.mask_key, mask)
            if real is not None:
                keys = tf.boolean_mask(keys, flat_values(real))
            loss = self.table.regularization_loss(keys)
            self.add_loss(tf.cast(loss, keras.backend.floatx()))  # Keras adds only equal dtypes
        if weights is not None:
            combining.require_pooling(self.combiner, weights)
            weights = weights if tf.is_tensor(weights) else tf.convert_to_tensor(weights)
            combining.check_weights(weights, ids, f"layer {self.name!r}")
        rows = self._rows_of(ids) if self.combiner is None else self._pooled(ids, weights, mask)
        return tf.cast(rows, self._output_dtype)

    def compute_mask(self, ids: Ids, mask: Rows | None = None) -> Rows | None:
        """Returns the output's mask, False for padding; None with a combiner or without masks."""
        if self.combiner is not None or (mask is None and self.mask_key is None):
            return None
        ids = ids if is_symbolic(ids) else self._as_keys(ids)
        return id_inputs.not_padding(ids, self.mask_key, mask)

    def compute_output_shape(self, input_shape: Sequence[int | None]) -> tuple[int | None, ...]:
        """Returns the shape of the output for ids of `input_shape`."""
        kept = tuple(input_shape) if self.combiner is None else tuple(input_shape)[:-1]
        return (*kept, self.table.dim)

    def compute_output_spec(
        self,
        ids: keras.KerasTensor,
        weights: keras.KerasTensor | None = None,
        mask: Rows | None = None,
    ) -> keras.KerasTensor:
        """Returns shape and dtype of the output for a symbolic input."""
        del mask
        self._check_dtype(ids)
        self._input_kinds.add(kind_of(ids))
        combining.require_pooling(self.combiner, weights)
        if self.combiner is not None:
            self._check_rank(ids)
        shape = self.compute_output_shape(ids.shape)
        ragged = getattr(ids, "ragged", False) and len(shape) > 2
        return keras.KerasTensor(shape, dtype=self._output_dtype, ragged=ragged)

    def count_params(self) -> int:
        """Returns the number of values in the table. `summary` shows it with rows and bytes."""
        return self.table.count_params()

    def set_weights(self, weights: list[Any]) -> None:
        """Copies the rows that `get_weights` of a layer has returned."""
        for each in weights:
            if type(each) is np.ndarray and each.ndim and each.shape[0]:
                raise ValueError(
                    "The weights of a table must come from `get_weights`, because rows have ids: "
                    "write a matrix by `layer.table.upsert(ids, matrix)`. Received: "
                    f"shape={each.shape}."
                )
        super().set_weights(weights)

    def get_config(self) -> dict[str, Any]:
        """Returns the arguments for `from_config`, without the rows."""
        table = self.table
        own = (
            {}
            if table.optimizer is None
            else {"optimizer": table.optimizer.get_config()["optimizer"]}
        )
        return {
            **super().get_config(),
            **own,
            "dim": table.dim,
            "key_dtype": table.key_dtype.name,
            "value_dtype": table.value_dtype.name,
            "combiner": arguments.serialized(self.combiner),
            "initializer": arguments.serialized(
                initial_rows.with_fans(table.initializer, table.init_size, table.dim)
            ),
            "devices": table.devices if self._has_devices else None,  # a strategy may choose them
            "with_unique": self.with_unique,
            "mask_key": self.mask_key,
            "max_norm": self.max_norm,
            "embeddings_regularizer": arguments.serialized(self.embeddings_regularizer),
            **{name: arguments.serialized(value) for name, value in self._of_table.items()},
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """Makes a layer with an empty table from the result of `get_config`."""
        arguments.leave_to_saved_functions()
        kept = {name: config[name] for name in ("dtype",) if name in config}
        restored = {name: arguments.deserialized(value) for name, value in config.items()}
        return cls(**{**restored, **kept})

    @property
    def _output_dtype(self) -> str:
        stored = self.table._table.spec.value_dtype
        return str(self.dtype_policy.compute_dtype if stored.is_floating else stored.name)

    def _rows_of(self, ids: Ids) -> Rows:
        """Returns a row for each id."""
        if isinstance(ids, tf.SparseTensor):
            raise ValueError(
                "`combiner` must be set for sparse ids: only pooled rows have a dense shape. "
                + received(combiner=None)
            )
        if self.with_unique:
            return embedding_lookup_unique(self.table, ids, max_norm=self.max_norm)
        return self.table._lookup_scaled(ids, self.max_norm)

    def _pooled(self, ids: Ids, weights: Ids | None, mask: Rows | None) -> Rows:
        """Looks up ids and pools their rows along the last axis."""
        self._check_rank(ids)
        segments = self._without_padding(by_last_dimension(ids, weights), ids, mask)
        return with_outer_dimensions(ids, self._pool(segments), self.table.dim)

    def _pool(self, segments: Segments) -> tf.Tensor:
        return combining.pool(
            self.table, segments, cast("combining.Combiner", self.combiner), self.max_norm
        )

    def _without_padding(self, segments: Segments, ids: Ids, mask: Rows | None) -> Segments:
        """Removes masked ids from segments that contain all of `ids`."""
        mask = id_inputs.not_padding(ids, self.mask_key, mask)
        return segments if mask is None else segments.where(flat_values(mask))

    @staticmethod
    def _check_rank(ids: Ids) -> None:
        if tf.TensorShape(ids.shape).rank == 0:
            raise ValueError(
                "The ids of a layer with a `combiner` must have rank 1 or more. "
                + received(ids=ids)
            )

    def _check_dtype(self, ids: Ids) -> None:
        id_inputs.check_dtype(ids, self.table.key_dtype.name, f"layer {self.name!r}")

    def _as_keys(self, ids: Ids) -> Ids:
        key_dtype = self.table._table.spec.key_dtype
        if isinstance(ids, tf.Tensor) and ids.dtype == key_dtype and not self._input_kinds:
            return ids
        if not isinstance(ids, (tf.RaggedTensor, tf.SparseTensor)) and not is_symbolic(ids):
            ids = tf.convert_to_tensor(ids)
        if not is_symbolic(ids) and only_builds(ids):
            return placeholder_keys(ids, self.table._table)
        self._check_dtype(ids)
        note_kind(kind_of(ids), self.table._table)
        self._warn_of_padding(ids)
        return tf.cast(ids, key_dtype)

    def _warn_of_padding(self, ids: Ids) -> None:
        """Warns if ids are dense in a traced function, but ragged or sparse in the model.

        Keras makes such a function to export a model. The function looks up padding like any id.
        """
        padded = self._input_kinds and "dense" not in self._input_kinds and kind_of(ids) == "dense"
        if padded and self.mask_key is None and tf.is_symbolic_tensor(ids):
            warnings.warn(
                f"The ids of layer {self.name!r} are dense here, but {min(self._input_kinds)} in "
                "the model. Ids that pad the dense ids are looked up like any other id. Pass "
                "`mask_key`, or export with de.export, which keeps ragged and sparse inputs.",
                stacklevel=2,
            )
