"""`tfra.dynamic_embedding`: its names, arguments, their order and defaults."""

from __future__ import annotations

import sys
from typing import Any

from de_core.base.removed_names import PACKAGE, missing
from de_core.checkpoint.warm_start import WarmStartHook, warm_start
from de_core.storage.creator import KVCreator
from de_core.storage.redis import RedisTableConfig, RedisTableCreator
from de_core.tables.restrict import RestrictPolicy
from de_core.tfra import names as _names
from de_core.tfra.api import keras_layers as _keras_layers
from de_core.tfra.api import shadow_ops
from de_core.tfra.api.lookups import (
    embedding_lookup,
    embedding_lookup_sparse,
    embedding_lookup_unique,
    safe_embedding_lookup_sparse,
)
from de_core.tfra.api.policies import FrequencyRestrictPolicy, TimestampRestrictPolicy
from de_core.tfra.api.variable import Variable, get_variable
from de_core.tfra.api.wrappers import TrainableWrapper
from de_core.tfra.names import (
    CuckooHashTableConfig,
    CuckooHashTableCreator,
    DynamicEmbeddingOptimizer,
    FileSystemSaver,
    GraphKeys,
    ModelMode,
    data_flow,
    enable_inference_mode,
    enable_train_mode,
    get_model_mode,
    math,
    patch_on_tf,
    patch_on_tf_save_restore,
    train,
    trainable_wrapper_filter,
)

_HERE = "tensorflow_recommenders_addons.dynamic_embedding"
keras = _names.Namespace(
    f"{_HERE}.keras",
    {
        "callbacks": _names.CALLBACKS,
        "layers": {
            **{name: getattr(_keras_layers, name) for name in _keras_layers.__all__},
            "HvdAllToAllEmbedding": f"use Embedding. {_names.HOROVOD}",
            "LayerNormalization": "use keras.layers.LayerNormalization",
        },
        "models": _names.MODELS,
    },
)
ragged_embedding_ops = _names.Namespace(
    f"{_HERE}.ragged_embedding_ops",
    {
        "embedding_lookup_sparse": embedding_lookup_sparse,
        "safe_embedding_lookup_sparse": safe_embedding_lookup_sparse,
    },
)
#: Where programs find names that `tfra` does not export at its top.
_FILES = (
    *("dynamic_embedding_creator", "dynamic_embedding_ops", "dynamic_embedding_optimizer"),
    *("dynamic_embedding_variable", "embedding_weights", "restrict_policies", "tf_patch"),
    *("tf_save_restore_patch", "warm_start_util", "cuckoo_hashtable_ops", "hkv_hashtable_ops"),
    *("redis_table_ops", "distributed_embedding_variable"),
)
python = _names.Namespace(
    f"{_HERE}.python",
    {
        "keras": keras,
        "ops": {
            **dict.fromkeys(_FILES, sys.modules[__name__]),
            "data_flow_ops": data_flow,
            "math_ops": math,
            "ragged_embedding_ops": ragged_embedding_ops,
            "shadow_embedding_ops": shadow_ops,
        },
        "train": train,
    },
)


def __getattr__(name: str) -> Any:
    """Returns a stand-in for a name without a counterpart. Its first use raises the remedy."""
    if name in _names.ABSENT:
        return _names.absent(name, _names.ABSENT[name])
    raise missing(f"module {_HERE!r}", name, PACKAGE)


__all__ = [
    "CuckooHashTableConfig",
    "CuckooHashTableCreator",
    "DynamicEmbeddingOptimizer",
    "FileSystemSaver",
    "FrequencyRestrictPolicy",
    "GraphKeys",
    "KVCreator",
    "ModelMode",
    "RedisTableConfig",
    "RedisTableCreator",
    "RestrictPolicy",
    "TimestampRestrictPolicy",
    "TrainableWrapper",
    "Variable",
    "WarmStartHook",
    "data_flow",
    "embedding_lookup",
    "embedding_lookup_sparse",
    "embedding_lookup_unique",
    "enable_inference_mode",
    "enable_train_mode",
    "get_model_mode",
    "get_variable",
    "keras",
    "math",
    "patch_on_tf",
    "patch_on_tf_save_restore",
    "python",
    "ragged_embedding_ops",
    "safe_embedding_lookup_sparse",
    "shadow_ops",
    "train",
    "trainable_wrapper_filter",
    "warm_start",
]
