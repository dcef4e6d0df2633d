"""Chooses Keras 3 or tf_keras, and checks at import that it runs on TensorFlow.

``TF_USE_LEGACY_KERAS=1`` selects tf_keras (Keras 2), as in TensorFlow itself. All modules of this
library import `keras` from here, so that all use the same copy.
"""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

#: True if `keras` is tf_keras.
LEGACY: bool = os.environ.get("TF_USE_LEGACY_KERAS", "").lower() in ("1", "true")


def _load() -> Any:
    try:
        return importlib.import_module("tf_keras" if LEGACY else "keras")
    except ImportError as error:
        if LEGACY:
            raise ImportError(
                "TF_USE_LEGACY_KERAS=1 requires tf_keras in the same minor version as TensorFlow. "
                f"Received: {error}. Run: pip install tf_keras"
            ) from error
        # Importing Keras fails if, for example, its backend is not installed.
        raise _wrong_backend(os.environ.get("KERAS_BACKEND", "unknown")) from error


def _wrong_backend(backend: str) -> ImportError:
    return ImportError(
        "de_core needs Keras 3 on its TensorFlow backend. "
        f"Received: backend={backend!r}. Run: export KERAS_BACKEND=tensorflow"
    )


if TYPE_CHECKING:
    import keras as keras  # so that editors know the layers' and optimizers' methods
else:
    #: The Keras module, with `layers`, `optimizers`, `saving` and so on.
    keras = _load()


def check() -> None:
    """Raises if Keras does not use the TensorFlow backend.

    Raises:
        ImportError: Keras uses another backend. The message has the command that changes it.
    """
    if not LEGACY and keras.backend.backend() != "tensorflow":
        raise _wrong_backend(keras.backend.backend())


def global_policy() -> keras.DTypePolicy:
    """Returns the dtype policy of layers that do not set their own."""
    if LEGACY:
        return keras.mixed_precision.global_policy()
    return keras.config.dtype_policy()


def is_symbolic(value: object) -> bool:
    """Returns whether a value is a placeholder of Keras 3's shape inference."""
    return not LEGACY and isinstance(value, keras.KerasTensor)


def only_builds(ids: tf.Tensor | tf.SparseTensor | tf.RaggedTensor) -> bool:
    """Returns whether `ids` are the float placeholders with which Keras builds a model.

    Keras calls a subclassed model on float placeholders when it loads or builds the model. It
    computes nothing then. Real data never reaches this path.
    """
    is_floating = tf.as_dtype(ids.dtype).is_floating  # a `keras.Variable` has its dtype's name
    if not is_floating or not tf.is_symbolic_tensor(getattr(ids, "values", ids)):
        return False
    return is_building()


def is_building() -> bool:
    """Returns whether Keras is running a model on placeholders, only for the shapes."""
    if not LEGACY:
        with keras.SymbolicScope() as scope:
            return scope.original_scope is not None
    graph = tf.compat.v1.get_default_graph()
    while (
        graph is not None and getattr(graph, "name", "") != "build_graph"
    ):  # placeholders of `tf_keras.Model.build`
        graph = getattr(graph, "outer_graph", None)
    return graph is not None


def dtype_name(dtype: tf.DType | np.dtype[Any] | type | str) -> str:
    """Returns the name of a TensorFlow, numpy or Keras dtype, such as "int64"."""
    return dtype if isinstance(dtype, str) else str(getattr(dtype, "name", dtype))
