"""Keras layers over tables."""

from de_core.base import removed_names as _removed
from de_core.layers.embedding import Embedding
from de_core.layers.embedding_collection import EmbeddingCollection
from de_core.layers.pooling_layers import FieldWiseEmbedding, SquashedEmbedding

#: The reference API's name of `Embedding`.
BasicEmbedding = Embedding

__all__ = [
    "BasicEmbedding",
    "Embedding",
    "EmbeddingCollection",
    "FieldWiseEmbedding",
    "SquashedEmbedding",
]

__getattr__ = _removed.removed_names(
    __name__,
    HvdAllToAllEmbedding="Embedding, whose `devices` put its shards on several machines",
    LayerNormalization="keras.layers.LayerNormalization",
)
