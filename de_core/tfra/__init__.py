"""Names of `tfra.dynamic_embedding` that keep a meaning here, so that its users change an import.

What means the same is an alias. What has nothing left to do does nothing, and says so. What would
do something else is not there, and asking for it names the replacement; see `removed`.
"""

from __future__ import annotations

from de_core.storage.creator import (
    CuckooHashTableConfig,
    CuckooHashTableCreator,
    FileSystemSaver,
    KVCreator,
)
from de_core.tfra import shadow_ops
from de_core.tfra.names import (
    GraphKeys,
    ModelMode,
    data_flow,
    enable_inference_mode,
    enable_train_mode,
    get_model_mode,
    keras,
    math,
    patch_on_tf,
    patch_on_tf_save_restore,
    register_all,
    train,
    trainable_wrapper_filter,
)

__all__ = [
    "CuckooHashTableConfig",
    "CuckooHashTableCreator",
    "FileSystemSaver",
    "GraphKeys",
    "KVCreator",
    "ModelMode",
    "data_flow",
    "enable_inference_mode",
    "enable_train_mode",
    "get_model_mode",
    "keras",
    "math",
    "patch_on_tf",
    "patch_on_tf_save_restore",
    "register_all",
    "shadow_ops",
    "train",
    "trainable_wrapper_filter",
]
