"""Handles tf_keras loading a layer from a SavedModel."""

from __future__ import annotations

from de_core.base import call_stack
from de_core.base.keras import LEGACY


def leave_to_saved_functions() -> None:
    """Makes tf_keras load a layer of a SavedModel from its saved functions, not from its config.

    A layer from the config would have an empty table. The saved functions look up the read-only
    tables of the SavedModel.

    Raises:
        KeyError: tf_keras's loader is on the call stack. It catches the error, and then uses the
            saved functions.
    """
    loader = "_revive_layer_or_model_from_config"
    if LEGACY and call_stack.nearest(lambda frame: frame.f_code.co_name == loader) is not None:
        raise KeyError("The rows are in the read-only tables of the SavedModel.")
