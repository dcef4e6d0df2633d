"""Keras 3 layers over tables."""

from de_core.layers.embedding import Embedding

__all__ = ["Embedding"]
