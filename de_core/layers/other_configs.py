"""Converts the table and feature configs of keras-rs and tf.tpu to ours."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from de_core.base.checks import received
from de_core.base.keras import keras
from de_core.layers.configs import FeatureConfig, TableConfig
from de_core.lookup.pooling import COMBINERS

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
