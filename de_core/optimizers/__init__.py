"""Optimizers that train tables."""

from de_core.optimizers.dynamic_embedding_optimizer import DynamicEmbeddingOptimizer

__all__ = ["DynamicEmbeddingOptimizer"]
