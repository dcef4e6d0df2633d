"""Names of `tfra.dynamic_embedding`, so that its users only need to change an import.

A name with the same meaning is an alias. A function that is not needed here does nothing, and its
docstring says so. A name whose meaning would differ does not exist. The error for it names the
replacement; see `base/removed_names.py`.
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
