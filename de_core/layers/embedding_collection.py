"""The Keras layer over the tables of many features."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from de_core.base.checks import received
from de_core.base.keras import global_policy, keras, only_builds
from de_core.base.no_autograph import no_autograph
from de_core.base.types import Ids
from de_core.layers import arguments, combining, id_inputs
from de_core.layers.configs import FeatureConfig, TableConfig
from de_core.layers.declared_features import DeclaredFeatures
from de_core.lookup.feature import Feature, lookup_features, lookup_joined, shape_of_rows
from de_core.lookup.segments import kind_of
from de_core.tables.keys_and_values import placeholder_keys
from de_core.variable.inspection import params_of
from de_core.variable.variable import Variable

if TYPE_CHECKING:
    from typing_extensions import Self


# Characters that an attribute lacks.
_SPECIAL = re.compile(r"[^A-Za-z0-9_]")


@keras.saving.register_keras_serializable(package="de_core")
class EmbeddingCollection(keras.layers.Layer):
    """Looks up the ids of many features at once, in tables that grow while they are trained.

    Each `de.TableConfig` becomes one table, `tables[name]`, which several features may share. Call
    the layer with the ids of all features: a dict, or any nest, of the structure of `features`.

    Args:
        features: A dict, list or other nest of `de.FeatureConfig`s. The configs of
            `keras_rs.layers` and `tf.tpu.experimental.embedding` are accepted too: the number of
            rows becomes the table's `init_size`, which limits nothing.
        concatenate: True to return one tensor [batch, sum of dims] instead of one per feature. The
            features then follow each other in the order of `tf.nest.flatten`, which sorts a dict by
            its keys. A sequence cannot be concatenated.
        name: Name of the layer; None for a generated name.
        **kwargs: Further arguments of `keras.layers.Layer`, such as `dtype` and `trainable`.

    Raises:
        TypeError: An element of `features` is not a config.
        ValueError: There is no feature, two features or two tables have the same name, or a
            sequence is to be concatenated.

    Input shape:
        For each feature a dense tensor: [batch], one id per example, or [batch, …, ids]. Or a
        ragged or sparse tensor [batch, ids].

    Output shape:
        For each feature ids.shape[:-1] + [dim], and [batch, dim] for ids of shape [batch]. A
        sequence has the shape ids.shape[:-1] + [max_length, dim]. Without `max_length` it has the
        shape ids.shape + [dim], and is ragged for ragged ids.

    Example:
    >>> import de_core as de
    >>> items = de.TableConfig("items", 2, initializer="ones")
    >>> layer = de.layers.EmbeddingCollection(
    ...     {
    ...         "viewed": de.FeatureConfig("viewed", items, combiner="sum"),
    ...         "bought": de.FeatureConfig("bought", items),
    ...     }
    ... )
    >>> ids = {"viewed": tf.ragged.constant([[7, 9], []], dtype=tf.int64)}
    >>> rows = layer({**ids, "bought": tf.constant([7, 8], tf.int64)})
    >>> rows["viewed"].numpy().tolist(), rows["bought"].numpy().tolist()
    ([[2.0, 2.0], [0.0, 0.0]], [[1.0, 1.0], [1.0, 1.0]])
    """

    def __init__(
        self,
        features: Any = None,
        *,
        concatenate: bool = False,
        name: str | None = None,
        **kwargs: Any,
    ) -> None:
        if features is None:
            raise TypeError(
                "`features` must be a de.FeatureConfig, or a nest of them: write "
                f"EmbeddingCollection(features). Received: {', '.join(kwargs) or 'no features'}."
            )
        declared = DeclaredFeatures.of(features)
        sequences = [config.name for config in declared.configs if config.combiner is None]
        if concatenate and sequences:
            raise ValueError(
                "A sequence must not be concatenated: set its `combiner`, or concatenate=False. "
                f"Received: concatenate=True with the sequences {sequences}."
            )
        policy = global_policy()
        dtypes = {config.table.value_dtype for config in declared.configs}
        if len(dtypes) == 1 and policy.compute_dtype == policy.variable_dtype:
            kwargs.setdefault("dtype", dtypes.pop().name)  # return rows in their stored dtype
        super().__init__(name=name, **{**kwargs, "autocast": False})  # ids are never cast
        self.concatenate = bool(concatenate)
        self.supports_jit = False  # XLA cannot run the ops
        self._declared = declared
        # Attributes, because a tf.train.Checkpoint does not find tables in a dict of a Keras layer.
        # Named by the tables, so that a feature more does not change which rows a file has.
        self._attributes: tuple[str, ...] = ()
        for table in declared.tables:
            attribute = "table_" + _SPECIAL.sub(lambda each: f"_{ord(each[0]):x}_", table.name)
            if attribute in self._attributes:
                raise ValueError(
                    "The weights of a collection's tables must have distinct names in files. "
                    f"Received: {attribute!r} twice. Rename the table {table.name!r}."
                )
            setattr(self, attribute, table.new_table(self.trainable))
            self._attributes += (attribute,)
        self.built = True

    @property
    def features(self) -> Any:
        """The `de.FeatureConfig` of each feature, in the structure of the layer's inputs."""
        return self._declared.features

    @property
    def tables(self) -> dict[str, Variable]:
        """The tables, `de.Variable`s by name."""
        names = (table.name for table in self._declared.tables)
        variables = (getattr(self, attribute) for attribute in self._attributes)
        return dict(zip(names, variables, strict=True))

    @property
    def dtype(self) -> str:
        """Dtype of the rows that the layer returns."""
        return str(self.dtype_policy.compute_dtype)

    @no_autograph
    def __call__(self, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        """Looks up the ids of all features. Takes lists of numbers or strings, too."""
        declared = self._declared
        ids = [
            id_inputs.plain_ids(each, config.table.key_dtype, f"feature {config.name!r}")
            for each, config in zip(declared.flat(inputs), declared.configs, strict=True)
        ]
        return super().__call__(declared.packed(ids), *args, **kwargs)

    @no_autograph
    def call(self, inputs: Any, weights: Any = None) -> Any:
        """Looks up the ids of all features.

        Args:
            inputs: The ids of each feature, in the structure of `features`. A table with int64 keys
                accepts int32 ids too.
            weights: The weight of each id, in the same structure; None for weights of 1. A feature
                may have None, or be left out of a dict, unless its config requires weights. Weights
                have the kind and the shape of the ids and a floating-point dtype.
        """
        declared, tables = self._declared, self.tables
        ids = declared.flat(inputs)
        factors = declared.flat_weights(weights)
        features = [
            _feature(config, tables[config.table.name], each, factor)
            for config, each, factor in zip(declared.configs, ids, factors, strict=True)
        ]
        if self.concatenate:
            return lookup_joined(features, self.compute_dtype)
        rows = lookup_features(features)
        return declared.packed([tf.cast(each, self.compute_dtype) for each in rows])

    def compute_output_spec(self, inputs: Any, weights: Any = None) -> Any:
        """Returns shapes and dtypes of the output for symbolic inputs."""
        declared = self._declared
        declared.flat_weights(weights)
        specs = []
        for config, ids in zip(declared.configs, declared.flat(inputs), strict=True):
            _check_ids(config, ids)
            dim, is_sequence = config.table.dim, config.combiner is None
            shape = shape_of_rows(ids.shape, dim, is_sequence, config.max_length)
            is_ragged = getattr(ids, "ragged", False) and config.is_unbounded
            specs.append(keras.KerasTensor(shape, dtype=self.compute_dtype, ragged=is_ragged))
        if not self.concatenate:
            return declared.packed(specs)
        width = sum(spec.shape[-1] for spec in specs)
        return keras.KerasTensor((*specs[0].shape[:-1], width), dtype=self.compute_dtype)

    def count_params(self) -> int:
        """Returns the number of values in the tables. `summary` shows it with rows and bytes."""
        return params_of([variable._table for variable in self.tables.values()])

    def get_config(self) -> dict[str, Any]:
        """Returns the arguments for `from_config`, without the rows."""
        return {
            **super().get_config(),
            "features": keras.saving.serialize_keras_object(self._declared.features),
            "concatenate": self.concatenate,
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """Makes a layer with empty tables from the result of `get_config`."""
        arguments.leave_to_saved_functions()
        features = keras.saving.deserialize_keras_object(config["features"])
        tables: dict[str, TableConfig] = {}
        for feature in tf.nest.flatten(features):  # each feature was stored with its own table
            feature.table = tables.setdefault(feature.table.name, feature.table)
        return cls(**{**config, "features": features})


def _feature(config: FeatureConfig, variable: Variable, ids: Any, weights: Any) -> Feature:
    """Returns a feature to look up, after checking its ids and weights."""
    ids = _as_tensor(ids)
    if only_builds(ids):
        ids = placeholder_keys(ids, variable._table)
    _check_ids(config, ids)
    if weights is not None:
        weights = _as_tensor(weights)
        if config.combiner is None:
            raise ValueError(
                f"The feature {config.name!r} must have no weights, because the rows of a sequence "
                f"are not pooled. {received(weights=weights)}"
            )
        combining.check_weights(weights, ids, f"feature {config.name!r}")
    return Feature(variable, ids, weights, config.combiner, config.max_length, config.mask_key)


def _as_tensor(ids: Any) -> Ids:
    return ids if tf.is_tensor(ids) else tf.convert_to_tensor(ids)


def _check_ids(config: FeatureConfig, ids: Any) -> None:
    """Checks the ids of a feature, tensors or Keras symbolic tensors."""
    id_inputs.check_dtype(ids, config.table.key_dtype.name, f"feature {config.name!r}")
    rank = tf.TensorShape(ids.shape).rank
    kind = kind_of(ids)
    if rank is None or rank < 1 or (kind != "dense" and rank != 2):
        raise ValueError(
            f"The ids of feature {config.name!r} must be dense [batch] or [batch, ..., ids], or "
            f"ragged or sparse [batch, ids]. Received: {kind} ids.shape={tuple(ids.shape or ())}."
        )
    if kind == "sparse" and config.is_unbounded:
        raise ValueError(
            f"The feature {config.name!r} must have a `max_length` or a `combiner`: the rows of "
            f"sparse ids have no shape otherwise. {received(max_length=None)}"
        )
