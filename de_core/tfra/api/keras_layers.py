"""The layers of `tfra.dynamic_embedding.keras.layers`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from de_core import layers
from de_core.base.checks import received
from de_core.base.keras import keras
from de_core.base.types import DTypeLike, InitializerLike
from de_core.tfra.api.shadow_ops import ShadowVariable
from de_core.tfra.api.variable import SlotVariable, Variable, slots_of
from de_core.variable.new_table import numbered

__all__ = ["BasicEmbedding", "Embedding", "FieldWiseEmbedding", "SquashedEmbedding"]
_LAYER = "DynamicEmbeddingLayer"
_FIELD_WISE = "SlotDynamicEmbeddingLayer"


class _Arguments:
    """Translates the arguments of `tfra`'s layers into ours, and back for `get_config`."""

    _auto_initializer: str = "random_normal"
    _no_initializer: str | None = "random_normal"
    _table_class = Variable
    _pools = True

    @property
    def embedding_size(self: Any) -> int:
        """Values per row."""
        return int(self.table.dim)

    @property
    def shadow(self: Any) -> ShadowVariable:
        """A variable that stands for the table, for an optimizer."""
        trainable = self.table.trainable_variables != []
        return ShadowVariable(self.table, max_norm=self.max_norm, trainable=trainable)

    @property
    def optimizer_vars(self: Any) -> list[SlotVariable]:
        """The slots of all optimizers of the table."""
        return slots_of(self.table)

    def get_config(self: Any) -> dict[str, Any]:
        """Returns the arguments for `from_config`, without the rows."""
        config = super().get_config()  # type: ignore[misc]
        names = {"dim": "embedding_size", "init_size": "init_capacity"}
        return {names.get(name, name): value for name, value in config.items()}

    @classmethod
    def from_config(cls: Any, config: dict[str, Any]) -> Any:
        """Makes a layer with an empty table from the result of `get_config`."""
        config = {"dim": config.get("embedding_size"), **config}
        config["embedding_size"] = config["dim"]
        return super().from_config(config)  # type: ignore[misc]


def _ours(arguments: dict[str, Any]) -> dict[str, Any]:
    """Returns our arguments for the arguments of one of `tfra`'s layers.

    Raises:
        TypeError: An argument has no counterpart.
    """
    further, self, _ = (arguments.pop(each) for each in ("kwargs", "self", "__class__"))
    if not self._pools:
        arguments["combiner"] = None
    if further.pop("distribute_strategy", None) is not None:
        raise TypeError(
            "`distribute_strategy` must be None. Make the layer in the strategy's scope instead. "
            + received(distribute_strategy="a strategy")
        )
    further.pop("keep_distribution", None)
    if "init_capacity" in further:
        further["init_size"] = further.pop("init_capacity")
    arguments["dim"] = arguments.pop("embedding_size")
    is_restored = further.pop("dim", None) is not None  # `from_config` passes both names
    if arguments["name"] in (_LAYER, _FIELD_WISE) and not is_restored:
        # Two layers never share rows here.
        arguments["name"] = numbered(arguments["name"])
    arguments.pop("short_file_name", None)
    further.pop("short_file_name", None)
    return {**arguments, **further}


class _Layer(_Arguments):
    """The constructor of two layers."""

    def __init__(
        self,
        embedding_size: int,
        key_dtype: DTypeLike = tf.int64,
        value_dtype: DTypeLike = tf.float32,
        combiner: Any = "sum",
        initializer: InitializerLike = None,
        devices: Sequence[str] | None = None,
        name: str | None = _LAYER,
        with_unique: bool = True,
        short_file_name: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**_ours(dict(locals())))


@keras.saving.register_keras_serializable(package="de_core.keras")
class Embedding(_Layer, layers.Embedding):
    """Returns a row for each id; see `de.layers.Embedding`.

    Args:
        embedding_size: Values per row.
        key_dtype: `tf.int64`, `tf.int32` or `tf.string`.
        value_dtype: Dtype of the rows in the table.
        combiner: Ignored, as in `tfra`: only `SquashedEmbedding` and `FieldWiseEmbedding` pool.
        initializer: Defines the row of an unknown id. None for a normal distribution with standard
            deviation 0.05.
        devices: Device of each shard.
        name: Name of the layer and its table.
        with_unique: Whether to read each distinct id only once.
        short_file_name: Ignored.
        **kwargs: `init_capacity` for `init_size`; further arguments of `de.layers.Embedding`.

    Example:
    >>> from de_core import tfra
    >>> layer = tfra.dynamic_embedding.keras.layers.Embedding(8, initializer="zeros")
    >>> layer(tf.constant([[7, 9]], tf.int64)).shape
    TensorShape([1, 2, 8])
    """

    _pools = False


@keras.saving.register_keras_serializable(package="de_core.keras")
class SquashedEmbedding(_Layer, layers.SquashedEmbedding):
    """Pools the rows of an example; see `Embedding` and `de.layers.SquashedEmbedding`."""


@keras.saving.register_keras_serializable(package="de_core.keras")
class FieldWiseEmbedding(_Arguments, layers.FieldWiseEmbedding):
    """Pools the rows of each example by field; see `de.layers.FieldWiseEmbedding`.

    Args:
        embedding_size: See `Embedding`, also for the arguments that are not described here.
        nslots: Number of fields.
        slot_map_fn: `f(ids)` that returns the field of each id.
        **kwargs: See `Embedding`.
    """

    def __init__(
        self,
        embedding_size: int,
        nslots: int,
        slot_map_fn: Callable[[tf.Tensor], Any] | None = None,
        key_dtype: DTypeLike = tf.int64,
        value_dtype: DTypeLike = tf.float32,
        combiner: Any = "sum",
        initializer: InitializerLike = None,
        devices: Sequence[str] | None = None,
        name: str | None = _FIELD_WISE,
        with_unique: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(**_ours(dict(locals())))


BasicEmbedding = Embedding
