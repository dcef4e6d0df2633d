"""What the layers pass on to their tables, and how their configurations keep it."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import tensorflow as tf

from de_core.base.keras import keras
from de_core.tables.eviction import Eviction
from de_core.tables.restrict import RestrictPolicy, name_of_policy, policy_named
from de_core.tables.router import default_partition_fn
from de_core.variable.variable import Variable

_POLICY = "restrict_policy"
# What layers have arguments of their own for.
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
#: Further arguments of `Variable`, such as `partitioner` and `init_size`.
NAMES = tuple(name for name in inspect.signature(Variable.__init__).parameters if name not in _OWN)


def taken_from(arguments: dict[str, Any]) -> dict[str, Any]:
    """Removes the table's arguments from those of a layer and returns them.

    Args:
        arguments: Of the layer, by name; changed.
    """
    return {name: arguments.pop(name) for name in NAMES if name in arguments}


def serialized(value: Any) -> Any:
    """Returns an argument as JSON holds it: an initializer, a function, a policy, a number."""
    if value is None or isinstance(value, (str, bool, int, float)):
        return value
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
    return keras.saving.serialize_keras_object(value)


def deserialized(value: Any) -> Any:
    """Undoes `serialized`."""
    if isinstance(value, list):
        return [deserialized(each) for each in value]
    if not isinstance(value, dict):
        return value
    if _POLICY in value:
        return policy_named(value[_POLICY])
    return keras.saving.deserialize_keras_object(value)
