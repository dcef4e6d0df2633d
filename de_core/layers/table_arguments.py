"""Handles the `Variable` arguments of layers, and reads and writes them in configs."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import tensorflow as tf

from de_core.base import call_stack
from de_core.base.keras import LEGACY, keras
from de_core.tables.eviction import Eviction
from de_core.tables.restrict import RestrictPolicy, name_of_policy, policy_named
from de_core.tables.router import default_partition_fn
from de_core.variable.variable import Variable

_POLICY = "restrict_policy"
# Arguments of `Variable` that layers define themselves.
_OWN = {
    "self",
    "key_dtype",
    "value_dtype",
    "dim",
    "name",
    "shared_name",
    "trainable",
    "initializer",
    "regularizer",
    "devices",
}
#: Arguments of `Variable` that layers pass on, such as `partitioner` and `init_size`.
NAMES = tuple(name for name in inspect.signature(Variable.__init__).parameters if name not in _OWN)


def taken_from(arguments: dict[str, Any]) -> dict[str, Any]:
    """Removes the `Variable` arguments from a layer's arguments and returns them."""
    return {name: arguments.pop(name) for name in NAMES if name in arguments}


def serialized(value: Any) -> Any:
    """Returns an argument, such as an initializer, function or policy, as a JSON value."""
    if value is None or isinstance(value, (str, bool, int, float)):
        return value
    if isinstance(value, tf.DType):
        return value.name
    if value is default_partition_fn:
        return None
    if isinstance(value, (list, tuple)) and any(isinstance(each, Eviction) for each in value):
        return [serialized(each) for each in value]
    if isinstance(value, (np.ndarray, np.generic, list, tuple)) or tf.is_tensor(value):
        return np.asarray(value).tolist()
    if isinstance(value, type) and issubclass(value, RestrictPolicy):
        return {_POLICY: name_of_policy(value)}
    if isinstance(value, tf.types.experimental.PolymorphicFunction):
        value = value.python_function
    kind = type(value)
    if kind.__module__.startswith("tensorflow.") and hasattr(keras.initializers, kind.__name__):
        # Keras 3 writes an initializer of TensorFlow, but cannot read it again.
        config = {name: each for name, each in value.get_config().items() if name != "dtype"}
        value = getattr(keras.initializers, kind.__name__)(**config)
    return keras.saving.serialize_keras_object(value)


def deserialized(value: Any) -> Any:
    """Returns the argument for a JSON value. Reverses `serialized`."""
    if isinstance(value, list):
        return [deserialized(each) for each in value]
    if not isinstance(value, dict):
        return value
    if _POLICY in value:
        return policy_named(value[_POLICY])
    return keras.saving.deserialize_keras_object(value)


def leave_to_saved_functions() -> None:
    """Makes tf_keras load a layer of a SavedModel from its saved functions, not from its config.

    A layer from the config would have an empty table. The saved functions look up the read-only
    tables of the SavedModel.

    Raises:
        KeyError: tf_keras's loader is on the call stack. It catches the error, and then uses the
            saved functions.
    """
    loader = "_revive_layer_or_model_from_config"
    if LEGACY and call_stack.nearest(loader) is not None:
        raise KeyError("The rows are in the read-only tables of the SavedModel.")
