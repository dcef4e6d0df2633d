"""Declares tables and features; converts the declarations of keras-rs and tf.tpu."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import tensorflow as tf

from de_core.base.checks import check_integer, received
from de_core.base.keras import keras
from de_core.base.types import DTypeLike, Id, InitializerLike
from de_core.layers import arguments, id_inputs
from de_core.lookup.pooling import COMBINERS, Combiner, checked_combiner
from de_core.tables import initial_rows
from de_core.variable.variable import Variable

if TYPE_CHECKING:
    from typing_extensions import Self

#: Arguments of Keras's optimizers after the learning rate, which tf.tpu calls the same.
_SETTINGS = {
    "SGD": (),
    "Adagrad": ("initial_accumulator_value",),
    "Adam": ("beta_1", "beta_2", "epsilon"),
    "FTRL": (
        "learning_rate_power",
        "l1_regularization_strength",
        "l2_regularization_strength",
        "beta",
        "initial_accumulator_value",
    ),
}
#: Limits of tf.tpu's optimizers. Keras's optimizers have none, or apply them in another way.
_LIMITS = (
    "clip_gradient_min",
    "clip_gradient_max",
    "clip_weight_min",
    "clip_weight_max",
    "weight_decay_factor",
)
_DIMS = ("embedding_dim", "dim")  # the names of keras-rs and of tf.tpu


@keras.saving.register_keras_serializable(package="de_core")
class TableConfig:
    """Declares a table for `de.layers.EmbeddingCollection`.

    Several features that name the same `TableConfig` share its rows.

    Args:
        name: Name of the table, unique within a collection. Also the name of its lookup in an
            export.
        dim: Values per row, 1 to 4096.
        key_dtype: `tf.int64`, `tf.int32` or `tf.string`.
        value_dtype: Dtype of the rows: a floating-point dtype.
        initializer: Defines the row of an unknown id; see `de.Variable`. "auto" means uniform
            between -0.05 and 0.05.
        combiner: How features pool the rows of an example, unless they say otherwise: "sum",
            "mean" or "sqrtn".
        devices: Device names. Each device holds one shard of the table. None for the CPU.
        **options: Further arguments of `de.Variable`, such as `optimizer`, which trains this table
            at its own rate, `eviction`, `admission`, `init_size` and `kv_creator`.

    Raises:
        TypeError: An argument has a wrong type, or an option is not an argument of `de.Variable`.
        ValueError: `combiner` is unknown.

    Example:
    >>> import de_core as de
    >>> items = de.TableConfig("items", 16, eviction=de.EvictionLRU(max_rows=1_000_000))
    >>> items.name, items.dim
    ('items', 16)
    """

    def __init__(
        self,
        name: str = "",
        dim: int | None = None,
        *,
        key_dtype: DTypeLike = tf.int64,
        value_dtype: DTypeLike = tf.float32,
        initializer: InitializerLike = "auto",
        combiner: Combiner = "mean",
        devices: list[str] | None = None,
        **options: Any,
    ) -> None:
        if dim is None or "vocabulary_size" in options:
            raise TypeError(
                "A table needs a `dim` and no number of rows: write de.TableConfig(name, dim). "
                f"Received: {', '.join(sorted(options)) or 'no `dim`'}."
            )
        if not isinstance(name, str) or not name:
            raise TypeError(f"`name` must be a non-empty string. {received(name=name)}")
        self.value_dtype = tf.as_dtype(value_dtype)
        if not self.value_dtype.is_floating:
            raise TypeError(
                "`value_dtype` must be a floating-point dtype, because features are pooled and "
                f"trained. Use de.Variable for other values. {received(value_dtype=value_dtype)}"
            )
        self.name = name
        self.dim = dim
        self.key_dtype = tf.as_dtype(key_dtype)
        self.initializer = initializer
        self.combiner = checked_combiner(combiner)
        self.devices = devices
        self.options = arguments.for_table(options)
        if options:
            raise TypeError(
                f"The options of a table must be arguments of de.Variable: "
                f"{', '.join(arguments.NAMES)}. Received: {', '.join(sorted(options))}."
            )

    def new_table(self, trainable: bool) -> Variable:
        """Creates an empty table."""
        table = Variable(
            key_dtype=self.key_dtype,
            value_dtype=self.value_dtype,
            dim=self.dim,
            devices=self.devices,
            name=self.name,
            initializer="uniform" if self._is_auto else self.initializer,
            trainable=trainable or tf.compat.v1.executing_eagerly_outside_functions(),
            **self.options,
        )
        table.trainable = trainable  # a frozen layer may become trainable later
        return table

    def get_config(self) -> dict[str, Any]:
        """Returns the arguments for `from_config`."""
        initializer = self.initializer
        if not self._is_auto:
            height = int(self.options.get("init_size", 0))
            initializer = initial_rows.with_fans(initializer, height, self.dim)
        return {
            "name": self.name,
            "dim": self.dim,
            "key_dtype": self.key_dtype.name,
            "value_dtype": self.value_dtype.name,
            "initializer": arguments.serialized(initializer),
            "combiner": self.combiner,
            "devices": self.devices,
            **{name: arguments.serialized(value) for name, value in self.options.items()},
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """Makes a `TableConfig` from the result of `get_config`."""
        return cls(**{name: arguments.deserialized(each) for name, each in config.items()})

    @property
    def _is_auto(self) -> bool:
        return isinstance(self.initializer, str) and self.initializer == "auto"

    def __repr__(self) -> str:
        return f"<de.TableConfig {self.name!r} {self.key_dtype.name} -> [{self.dim}]>"


@keras.saving.register_keras_serializable(package="de_core")
class FeatureConfig:
    """Declares a feature for `de.layers.EmbeddingCollection`.

    Args:
        name: Name of the feature, unique within a collection.
        table: The table that holds the rows. Several features may share a table.
        combiner: How to pool the rows of an example: "sum", which is sum(weight * row); "mean", the
            sum divided by sum(weight); or "sqrtn", the sum divided by sqrt(sum(weight^2)). None for
            a sequence: a row for each id. "auto" for the table's combiner.
        max_length: Look up only the first `max_length` ids of an example; None for all. A sequence
            is filled with zeros up to this length.
        weights: Whether every call must pass a weight for each id. False: weights are optional.
        mask_key: The id that means padding, such as 0 or ""; None for no padding. Padding is left
            out of pooled rows, and becomes zeros in a sequence.

    Raises:
        TypeError: An argument has a wrong type.
        ValueError: `combiner` is unknown, `max_length` is not positive, or a sequence has weights.

    Example:
    >>> import de_core as de
    >>> items = de.TableConfig("items", 16)
    >>> viewed = de.FeatureConfig("viewed", items, combiner="sum", max_length=50)
    >>> bought = de.FeatureConfig("bought", items)
    >>> viewed.combiner, bought.combiner
    ('sum', 'mean')
    """

    def __init__(
        self,
        name: str,
        table: TableConfig,
        combiner: Combiner | Literal["auto"] | None = "auto",
        max_length: int | None = None,
        weights: bool = False,
        *,
        mask_key: Id | None = None,
    ) -> None:
        if not isinstance(name, str) or not name:
            raise TypeError(f"`name` must be a non-empty string. {received(name=name)}")
        if not isinstance(table, TableConfig):
            raise TypeError(f"`table` must be a de.TableConfig. {received(table=table)}")
        self.name = name
        self.table = table
        if combiner == "auto":
            combiner = table.combiner
        self.combiner = None if combiner is None else checked_combiner(combiner)
        check_integer("max_length", max_length, 1, or_none=True)
        self.max_length = None if max_length is None else int(max_length)
        self.weights = bool(weights)
        if self.weights and self.combiner is None:
            raise ValueError(
                "A sequence must have no weights, because its rows are not pooled. Set `combiner`. "
                + received(combiner=combiner, weights=weights)
            )
        self.mask_key = id_inputs.checked_key(mask_key, table.key_dtype)

    @property
    def is_unbounded(self) -> bool:
        """True for a sequence of any length."""
        return self.combiner is None and self.max_length is None

    def get_config(self) -> dict[str, Any]:
        """Returns the arguments for `from_config`."""
        return {
            "name": self.name,
            "table": keras.saving.serialize_keras_object(self.table),
            "combiner": self.combiner,
            "max_length": self.max_length,
            "weights": self.weights,
            "mask_key": self.mask_key,
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """Makes a `FeatureConfig` from the result of `get_config`."""
        table = config["table"]
        if not isinstance(table, TableConfig):
            table = keras.saving.deserialize_keras_object(table)
        return cls(**{**config, "table": table})

    def __repr__(self) -> str:
        return f"<de.FeatureConfig {self.name!r} of {self.table!r}>"


def converted(config: Any, path: tuple[Any, ...], tables: dict[int, TableConfig]) -> FeatureConfig:
    """Returns a feature's config of this library, of keras-rs or of tf.tpu as a `FeatureConfig`.

    Its place in the collection, `path`, names a feature without a name. `tables` has the tables
    that were converted, by the `id` of their own config, and is changed.

    Raises:
        TypeError: `config` is something else, or its table's combiner is not a name.
    """
    if isinstance(config, FeatureConfig):
        return config
    table = getattr(config, "table", None)
    if table is None or not hasattr(table, "vocabulary_size"):
        raise TypeError(
            "A collection must consist of de.FeatureConfig objects, or those of keras_rs.layers or "
            f"tf.tpu.experimental.embedding. {received(config=config)}"
        )
    if id(table) not in tables:
        tables[id(table)] = _table(table, len(tables))
    name = config.name or "_".join(map(str, path)) or "feature"
    sequence = getattr(config, "max_sequence_length", 0)  # of tf.tpu; 0 for a pooled feature
    if sequence:
        return FeatureConfig(name, tables[id(table)], None, sequence)
    shape = list(getattr(config, "input_shape", ()))  # of keras-rs: [batch] or [batch, ids]
    return FeatureConfig(name, tables[id(table)], max_length=shape[1] if len(shape) > 1 else None)


def _table(table: Any, number: int) -> TableConfig:
    if table.combiner not in COMBINERS:
        raise TypeError(
            f"A table's combiner must be one of {', '.join(COMBINERS)}. "
            + received(combiner=table.combiner)
        )
    dim = next(getattr(table, name) for name in _DIMS if hasattr(table, name))
    return TableConfig(
        table.name or f"table_{number}",
        dim,
        value_dtype=getattr(table, "dtype", tf.float32),
        initializer=table.initializer,
        optimizer=_optimizer(table.optimizer),
        combiner=table.combiner,
        init_size=table.vocabulary_size,
    )


def _optimizer(given: Any) -> Any:
    """Returns a table's optimizer as Keras knows it. tf.tpu has optimizers of its own."""
    settings = _SETTINGS.get(type(given).__name__)
    if settings is None or isinstance(given, (str, keras.optimizers.Optimizer)):
        return given
    if callable(given.learning_rate):
        raise TypeError(
            "The learning rate of a table's optimizer must be a number here: pass a Keras "
            f"optimizer with a schedule. {received(learning_rate=given.learning_rate)}"
        )
    limits = {name: limit for name in _LIMITS if (limit := getattr(given, name, None)) is not None}
    if limits:
        raise TypeError(
            "A table's optimizer must have no limits and no weight decay here: pass a Keras "
            f"optimizer with `clipvalue` or `weight_decay`. {received(**limits)}"
        )
    values = {name: getattr(given, name) for name in settings}
    kind = "Ftrl" if type(given).__name__ == "FTRL" else type(given).__name__
    return getattr(keras.optimizers, kind)(given.learning_rate, **values)
