"""The layers of `de.keras.layers`: rows without an `initializer` are normal there."""

from __future__ import annotations

from typing import Any

from de_core import layers
from de_core.base.keras import keras

__all__ = ["BasicEmbedding", "Embedding", "FieldWiseEmbedding", "SquashedEmbedding"]


class _NormalRows:
    """Without an `initializer`, rows are drawn with mean 0 and standard deviation 0.05."""

    _auto_initializer: str = "random_normal"
    _no_initializer: str | None = "random_normal"


@keras.saving.register_keras_serializable(package="de_core.keras")
class Embedding(_NormalRows, layers.Embedding):
    """See `de.layers.Embedding`. Without an `initializer`, rows are normal."""


@keras.saving.register_keras_serializable(package="de_core.keras")
class SquashedEmbedding(_NormalRows, layers.SquashedEmbedding):
    """See `de.layers.SquashedEmbedding`. Without an `initializer`, rows are normal."""


@keras.saving.register_keras_serializable(package="de_core.keras")
class FieldWiseEmbedding(_NormalRows, layers.FieldWiseEmbedding):
    """See `de.layers.FieldWiseEmbedding`. Without an `initializer`, rows are normal."""


BasicEmbedding = Embedding


def __getattr__(name: str) -> Any:
    """Refuses a name, with what replaces it."""
    return getattr(layers, name)
