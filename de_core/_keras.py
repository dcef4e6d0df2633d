"""Checks at import that Keras runs on TensorFlow, and says the fix if not."""

from __future__ import annotations

import importlib
import os


def check() -> None:
    """Raises if Keras uses another backend than TensorFlow.

    Raises:
        ImportError: With the command that changes it.
    """
    try:
        backend = importlib.import_module("keras").backend.backend()
    except ImportError:
        # Such as: the backend that is asked for is not installed.
        backend = os.environ.get("KERAS_BACKEND", "unknown")
    if backend != "tensorflow":
        raise ImportError(
            "de_core needs Keras 3 on its TensorFlow backend. "
            f"Received: backend={backend!r}. Run: export KERAS_BACKEND=tensorflow"
        )
