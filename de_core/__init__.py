"""Embedding tables that grow while a recommender model trains.

    import de_core as de

    users = de.get_variable("users", dim=16, initializer="uniform")
    rows = de.embedding_lookup(users, ids)

The import loads the op library and registers the gradient of a lookup. It changes nothing else.
"""

from __future__ import annotations

from de_core.base import environment as _environment
from de_core.base import keras as _keras

_environment.check()
_keras.check()

from de_core import checkpoint, distributed, layers, metrics, optimizers, tfra
from de_core.base import removed_names as _removed
from de_core.checkpoint.erasure import erase
from de_core.checkpoint.warm_start import WarmStartHook, warm_start
from de_core.exports.export import export
from de_core.exports.publish import publish
from de_core.exports.served_rows import KeepRows
from de_core.exports.shared_signature import shared_signature
from de_core.layers.configs import FeatureConfig, TableConfig
from de_core.lookup.lookup import (
    embedding_lookup,
    embedding_lookup_many,
    embedding_lookup_unique,
)
from de_core.lookup.prefetch import prefetch_rows
from de_core.lookup.sparse_lookup import embedding_lookup_sparse, safe_embedding_lookup_sparse
from de_core.metrics import callbacks
from de_core.optimizers import DynamicEmbeddingOptimizer
from de_core.storage.creator import KVCreator
from de_core.storage.redis import RedisTableConfig, RedisTableCreator
from de_core.storage.row_store import RowStore
from de_core.tables.admission import AdmissionBloom, AdmissionCount, AdmissionProbability
from de_core.tables.eviction import (
    EvictionLFU,
    EvictionLRU,
    EvictionScore,
    EvictionTTL,
)
from de_core.tables.restrict import FrequencyRestrictPolicy, RestrictPolicy, TimestampRestrictPolicy
from de_core.tables.router import default_partition_fn
from de_core.tables.tier import DiskTier
from de_core.variable import gradients as _gradients  # noqa: F401
from de_core.variable.scope import get_local_variable, get_variable
from de_core.variable.slots import get_slot_variables
from de_core.variable.trainable_wrapper import TrainableWrapper
from de_core.variable.variable import Variable

if not _keras.LEGACY:  # tf_keras needs no such class: its own LossScaleOptimizer works with tables.
    from de_core.optimizers.keras3.loss_scale import LossScaleOptimizer  # noqa: F401
__getattr__ = _removed.removed_names(__name__, **_removed.PACKAGE, **_removed.MOVED)
__version__ = "0.1.0"


def __dir__() -> list[str]:
    """Returns the public names, without the modules that imports leave here."""
    of_keras_3 = [] if _keras.LEGACY else ["LossScaleOptimizer"]
    return sorted([*__all__, *of_keras_3, "__all__", "__version__"])


__all__ = [
    "AdmissionBloom",
    "AdmissionCount",
    "AdmissionProbability",
    "DiskTier",
    "DynamicEmbeddingOptimizer",
    "EvictionLFU",
    "EvictionLRU",
    "EvictionScore",
    "EvictionTTL",
    "FeatureConfig",
    "FrequencyRestrictPolicy",
    "KVCreator",
    "KeepRows",
    "RedisTableConfig",
    "RedisTableCreator",
    "RestrictPolicy",
    "RowStore",
    "TableConfig",
    "TimestampRestrictPolicy",
    "TrainableWrapper",
    "Variable",
    "WarmStartHook",
    "callbacks",
    "checkpoint",
    "default_partition_fn",
    "distributed",
    "embedding_lookup",
    "embedding_lookup_many",
    "embedding_lookup_sparse",
    "embedding_lookup_unique",
    "erase",
    "export",
    "get_local_variable",
    "get_slot_variables",
    "get_variable",
    "layers",
    "metrics",
    "optimizers",
    "prefetch_rows",
    "publish",
    "safe_embedding_lookup_sparse",
    "shared_signature",
    "tfra",
    "warm_start",
]
