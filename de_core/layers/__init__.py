"""Keras layers over tables."""

from typing import Any

from de_core.layers.embedding import Embedding
from de_core.layers.field_wise_embedding import FieldWiseEmbedding
from de_core.layers.squashed_embedding import SquashedEmbedding

#: The reference API's name of `Embedding`.
BasicEmbedding = Embedding

__all__ = ["BasicEmbedding", "Embedding", "FieldWiseEmbedding", "SquashedEmbedding"]


def __getattr__(name: str) -> Any:
    """Refuses a name; for layers that the reference API had beside these, says what to use."""
    from de_core.base.removed_names import removed_names  # which knows this package

    return removed_names(
        __name__,
        HvdAllToAllEmbedding="Embedding, whose `devices` put its tables on several machines",
        LayerNormalization="keras.layers.LayerNormalization",
    )(name)
