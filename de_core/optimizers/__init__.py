"""Optimizers that train tables."""

from __future__ import annotations

import importlib
from typing import Any

from de_core.base.keras import LEGACY
from de_core.optimizers.tf1.sync_replicas import SyncReplicasOptimizer
from de_core.optimizers.wrap import DynamicEmbeddingOptimizer

# Register the optimizer classes with Keras, so that a process can load a compiled model by name.
if LEGACY:
    from de_core.optimizers.keras2 import optimizer as _optimizer  # noqa: F401
else:
    from de_core.optimizers.keras3 import (  # noqa: F401
        loss_scale,
        optimizer,
        rowwise,
    )
    from de_core.optimizers.keras3.table_optimizer import TableOptimizer
    from de_core.variable import own_optimizer

    own_optimizer.register(TableOptimizer.of)

__all__ = [
    "DynamicEmbeddingOptimizer",
    "LossScaleOptimizer",
    "RowwiseAdagrad",
    "RowwiseAdam",
    "SyncReplicasOptimizer",
]
_BUILT_ON_KERAS_3 = {
    "LossScaleOptimizer": "loss_scale",
    "RowwiseAdagrad": "rowwise",
    "RowwiseAdam": "rowwise",
}


def __getattr__(name: str) -> Any:
    """Imports the Keras 3 classes at their first use, because only tf_keras may be installed."""
    if name in _BUILT_ON_KERAS_3:
        module = importlib.import_module(f"{__name__}.keras3.{_BUILT_ON_KERAS_3[name]}")
        return getattr(module, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
