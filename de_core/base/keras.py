"""Which Keras this process uses, and a check at import that it runs on TensorFlow.

Keras 3, or tf_keras (Keras 2) where ``TF_USE_LEGACY_KERAS=1`` says so, as TensorFlow itself reads
it. What the library builds on Keras takes `keras` from here, so that there is one copy of it.
"""

from __future__ import annotations

import importlib
import os
from typing import Any

import tensorflow as tf

#: Whether `keras` is tf_keras.
LEGACY: bool = os.environ.get("TF_USE_LEGACY_KERAS", "").lower() in ("1", "true")


def _load() -> Any:
    try:
        return importlib.import_module("tf_keras" if LEGACY else "keras")
    except ImportError as error:
        if LEGACY:
            raise ImportError(
                "TF_USE_LEGACY_KERAS=1 asks for tf_keras, which must be installed in the minor "
                f"version of TensorFlow: pip install tf_keras. Received: {error}"
            ) from error
        # Such as: the backend that is asked for is not installed.
        raise _wrong_backend(os.environ.get("KERAS_BACKEND", "unknown")) from error


def _wrong_backend(backend: str) -> ImportError:
    return ImportError(
        "de_core needs Keras 3 on its TensorFlow backend. "
        f"Received: backend={backend!r}. Run: export KERAS_BACKEND=tensorflow"
    )


#: The module: its `layers`, `optimizers`, `saving` and so on.
keras: Any = _load()


def check() -> None:
    """Raises if Keras uses another backend than TensorFlow.

    Raises:
        ImportError: With the command that changes it.
    """
    if not LEGACY and keras.backend.backend() != "tensorflow":
        raise _wrong_backend(keras.backend.backend())


def global_policy() -> Any:
    """Returns the dtype policy of layers that name none."""
    if LEGACY:
        return keras.mixed_precision.global_policy()
    return keras.config.dtype_policy()


def is_symbolic(value: Any) -> bool:
    """Returns whether a value stands for one to come while Keras 3 only infers shapes."""
    return not LEGACY and isinstance(value, keras.KerasTensor)


def only_builds(ids: Any) -> bool:
    """Returns whether ids are floats because Keras builds a model and knows their shape alone.

    A subclassed model that is loaded, or asked to `build`, is run on placeholders of floats.
    Nothing is computed then. Data of a user never come so.

    Args:
        ids: A tensor, sparse or ragged too.
    """
    if not ids.dtype.is_floating or not tf.is_symbolic_tensor(getattr(ids, "values", ids)):
        return False
    if not LEGACY:
        with keras.SymbolicScope() as scope:
            return scope.original_scope is not None
    graph = tf.compat.v1.get_default_graph()
    while (
        graph is not None and getattr(graph, "name", "") != "build_graph"
    ):  # of `tf_keras.Model.build`
        graph = getattr(graph, "outer_graph", None)
    return graph is not None


def dtype_name(dtype: Any) -> str:
    """Returns the name of a dtype of TensorFlow, numpy or Keras, such as "int64"."""
    return dtype if isinstance(dtype, str) else str(getattr(dtype, "name", dtype))
