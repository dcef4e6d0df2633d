"""Embedding tables that grow while a recommender model trains.

    import de_core as de

    users = de.get_variable("users", dim=16, initializer="uniform")
    rows = de.embedding_lookup(users, ids)

Importing loads the op library and registers the gradient of a lookup. It changes nothing else.
"""

from __future__ import annotations

from de_core import _compat, _keras

_compat.check()
_keras.check()

from de_core import checkpoint, distributed, layers, optimizers  # noqa: E402
from de_core import gradients as _gradients  # noqa: E402, F401
from de_core.admission import (  # noqa: E402
    AdmissionBloom,
    AdmissionCount,
    AdmissionProbability,
)
from de_core.compat import *  # noqa: E402, F403
from de_core.compat import removed as _removed  # noqa: E402
from de_core.eviction import EvictionLFU, EvictionLRU, EvictionScore, EvictionTTL  # noqa: E402
from de_core.export import export  # noqa: E402
from de_core.exporting.served_rows import KeepRows  # noqa: E402
from de_core.import_tfra import import_tfra  # noqa: E402
from de_core.lookup import embedding_lookup, embedding_lookup_unique  # noqa: E402
from de_core.lookup_many import embedding_lookup_many  # noqa: E402
from de_core.optimizers import DynamicEmbeddingOptimizer  # noqa: E402
from de_core.publish import publish  # noqa: E402
from de_core.redis import RedisTableConfig, RedisTableCreator  # noqa: E402
from de_core.restrict import (  # noqa: E402
    FrequencyRestrictPolicy,
    RestrictPolicy,
    TimestampRestrictPolicy,
)
from de_core.row_store import RowStore  # noqa: E402
from de_core.scope import get_local_variable, get_variable  # noqa: E402
from de_core.sharding import default_partition_fn  # noqa: E402
from de_core.slots import get_slot_variables  # noqa: E402
from de_core.sparse_lookup import (  # noqa: E402
    embedding_lookup_sparse,
    safe_embedding_lookup_sparse,
)
from de_core.trainable_wrapper import TrainableWrapper  # noqa: E402
from de_core.variable import Variable  # noqa: E402
from de_core.warm_start import WarmStartHook, warm_start  # noqa: E402

if not _keras.LEGACY:  # tf_keras has a loss scale that tables need no other of
    from de_core.optimizers.loss_scale import LossScaleOptimizer  # noqa: F401
__getattr__ = _removed.removed_names(__name__, **_removed.PACKAGE)
__version__ = "0.1.0"
__all__ = [
    "AdmissionBloom",
    "AdmissionCount",
    "AdmissionProbability",
    "DynamicEmbeddingOptimizer",
    "EvictionLFU",
    "EvictionLRU",
    "EvictionScore",
    "EvictionTTL",
    "FrequencyRestrictPolicy",
    "KeepRows",
    "RedisTableConfig",
    "RedisTableCreator",
    "RestrictPolicy",
    "RowStore",
    "TimestampRestrictPolicy",
    "TrainableWrapper",
    "Variable",
    "WarmStartHook",
    "checkpoint",
    "default_partition_fn",
    "distributed",
    "embedding_lookup",
    "embedding_lookup_many",
    "embedding_lookup_sparse",
    "embedding_lookup_unique",
    "export",
    "get_local_variable",
    "get_slot_variables",
    "get_variable",
    "import_tfra",
    "layers",
    "optimizers",
    "publish",
    "safe_embedding_lookup_sparse",
    "warm_start",
]
