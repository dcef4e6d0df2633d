"""Layers that tf_keras makes anew of a SavedModel."""

from __future__ import annotations

from types import FrameType

from de_core.base import call_stack
from de_core.base.keras import LEGACY


def leave_to_saved_functions() -> None:
    """Raises where tf_keras's loader of SavedModels asks a layer's class for the layer.

    A SavedModel holds tables that are read only, not rows that a new layer could take. tf_keras
    then makes the layer of the functions that were saved, which look these tables up.

    Raises:
        KeyError: The loader is on the call stack; it expects errors and tells nobody.
    """
    if LEGACY and call_stack.nearest(_is_loader) is not None:
        raise KeyError("The rows are in tables of the SavedModel, which are read only.")


def _is_loader(frame: FrameType) -> bool:
    return frame.f_code.co_name == "_revive_layer_or_model_from_config"
