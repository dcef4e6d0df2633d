"""The layers of `de.keras.layers`. Their default `initializer` is "random_normal"."""

from __future__ import annotations

from typing import Any

from de_core import layers
from de_core.base.keras import keras

__all__ = ["BasicEmbedding", "Embedding", "FieldWiseEmbedding", "SquashedEmbedding"]


class _NormalRows:
    """Makes a normal distribution with stddev 0.05 the default for initial rows."""

    _auto_initializer: str = "random_normal"
    _no_initializer: str | None = "random_normal"


@keras.saving.register_keras_serializable(package="de_core.keras")
class Embedding(_NormalRows, layers.Embedding):
    """See `de.layers.Embedding`. Without an `initializer`, rows are normally distributed."""


@keras.saving.register_keras_serializable(package="de_core.keras")
class SquashedEmbedding(_NormalRows, layers.SquashedEmbedding):
    """See `de.layers.SquashedEmbedding`.

    Without an `initializer`, rows are normally distributed.
    """


@keras.saving.register_keras_serializable(package="de_core.keras")
class FieldWiseEmbedding(_NormalRows, layers.FieldWiseEmbedding):
    """See `de.layers.FieldWiseEmbedding`.

    Without an `initializer`, rows are normally distributed.
    """


BasicEmbedding = Embedding


def __getattr__(name: str) -> Any:
    """Raises an error that names the replacement of a removed name."""
    return getattr(layers, name)
