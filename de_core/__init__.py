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

from de_core.base import removed_names as _removed

# Tables and variables
from de_core.tables.router import default_partition_fn
from de_core.variable.scope import get_local_variable, get_variable
from de_core.variable.slots import get_slot_variables
from de_core.variable.trainable_wrapper import TrainableWrapper
from de_core.variable.variable import Variable

# Lookups
from de_core.lookup.lookup import embedding_lookup, embedding_lookup_many, embedding_lookup_unique
from de_core.lookup.prefetch import prefetch_rows
from de_core.lookup.sparse_lookup import embedding_lookup_sparse, safe_embedding_lookup_sparse
from de_core.variable import gradients as _gradients  # noqa: F401

# Layers
from de_core import layers
from de_core.layers.configs import FeatureConfig, TableConfig

# Optimizers
from de_core import optimizers
from de_core.optimizers import DynamicEmbeddingOptimizer

if not _keras.LEGACY:  # tf_keras needs no such class: its own LossScaleOptimizer works with tables.
    from de_core.optimizers.keras3.loss_scale import LossScaleOptimizer  # noqa: F401

# Which rows stay
from de_core.checkpoint.erasure import erase
from de_core.tables.admission import AdmissionBloom, AdmissionCount, AdmissionProbability
from de_core.tables.eviction import EvictionLFU, EvictionLRU, EvictionScore, EvictionTTL
from de_core.tables.restrict import FrequencyRestrictPolicy, RestrictPolicy, TimestampRestrictPolicy
from de_core.tables.tier import DiskTier

# Numbers of tables
from de_core import metrics
from de_core.metrics import callbacks

# Checkpoints and other files
from de_core import checkpoint, tfra
from de_core.checkpoint.warm_start import WarmStartHook, warm_start

# Exports
from de_core.exports.export import export
from de_core.exports.publish import publish
from de_core.exports.served_rows import KeepRows
from de_core.exports.shared_signature import shared_signature

# Clusters and storages
from de_core import distributed
from de_core.storage.creator import KVCreator
from de_core.storage.redis import RedisTableConfig, RedisTableCreator
from de_core.storage.row_store import RowStore

_of_tfra = {
    name: f"from de_core import tfra, and use tfra.dynamic_embedding.{name}"
    for name in tfra.dynamic_embedding.__all__
}
__getattr__ = _removed.removed_names(__name__, **{**_of_tfra, **_removed.PACKAGE})
__version__ = "0.1.0"


def __dir__() -> list[str]:
    """Returns the public names, without the modules that imports leave here."""
    of_keras_3 = [] if _keras.LEGACY else ["LossScaleOptimizer"]
    return sorted([*__all__, *of_keras_3, "__all__", "__version__"])


__all__ = [
    # Tables and variables
    "Variable",
    "get_variable",
    "get_local_variable",
    "get_slot_variables",
    "default_partition_fn",
    "TrainableWrapper",
    # Lookups
    "embedding_lookup",
    "embedding_lookup_unique",
    "embedding_lookup_many",
    "embedding_lookup_sparse",
    "safe_embedding_lookup_sparse",
    "prefetch_rows",
    # Layers
    "layers",
    "FeatureConfig",
    "TableConfig",
    # Optimizers
    "optimizers",
    "DynamicEmbeddingOptimizer",
    # Which rows stay
    "AdmissionCount",
    "AdmissionBloom",
    "AdmissionProbability",
    "EvictionLRU",
    "EvictionLFU",
    "EvictionScore",
    "EvictionTTL",
    "DiskTier",
    "RestrictPolicy",
    "TimestampRestrictPolicy",
    "FrequencyRestrictPolicy",
    "erase",
    # Numbers of tables
    "metrics",
    "callbacks",
    # Checkpoints and other files
    "checkpoint",
    "warm_start",
    "WarmStartHook",
    "tfra",
    # Exports
    "export",
    "publish",
    "shared_signature",
    "KeepRows",
    # Clusters and storages
    "distributed",
    "KVCreator",
    "RowStore",
    "RedisTableConfig",
    "RedisTableCreator",
]
