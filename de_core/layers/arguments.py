"""Takes the arguments of `keras.layers.Embedding` and of `Variable`, and keeps them in configs."""

from __future__ import annotations

import inspect
import numbers
from typing import Any

import numpy as np
import tensorflow as tf

from de_core.base import call_stack
from de_core.base.checks import received
from de_core.base.keras import LEGACY, keras
from de_core.base.types import DTypeLike
from de_core.tables.eviction import Eviction
from de_core.tables.restrict import RestrictPolicy, name_of_policy, policy_named
from de_core.tables.router import default_partition_fn
from de_core.variable.variable import Variable

_OURS = {
    "output_dim": "dim",
    "input_dim": "init_size",
    "embeddings_initializer": "initializer",
}
_BOUND = "Bound a table by its policy: eviction=de.EvictionLRU(max_rows=…)."
#: Arguments without a counterpart, and what to do instead.
_REFUSED = {
    "embeddings_constraint": "A table has no constraint: limit the norm of its rows by `max_norm`.",
    "weights": "A new table is empty: write rows by `layer.table.upsert(ids, rows)`.",
    "lora_rank": "A table has no LoRA rows: leave out `lora_rank`.",
    "input_length": "Inputs may have any length: leave out `input_length`.",
    **dict.fromkeys(("max_rows", "max_size", "capacity"), _BOUND),
    "ttl": "Expire rows by a policy: eviction=de.EvictionTTL(…).",
}
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


def from_keras(arguments: dict[str, Any], key_dtype: DTypeLike, **given: Any) -> dict[str, Any]:
    """Removes the arguments of `keras.layers.Embedding` and returns ours in their place.

    `given` has our arguments `dim`, `initializer` and `mask_key`. In `arguments`, `input_dim`
    becomes `init_size`.

    Raises:
        TypeError: An argument has no counterpart or contradicts ours, or `dim` is missing.
    """
    dim = given["dim"]
    # The first arguments may be a number of rows and a dim, as in Keras.
    if isinstance(key_dtype, numbers.Integral) and not isinstance(key_dtype, tf.DType):
        raise TypeError(
            "`key_dtype` must be a dtype: a table needs no number of rows, so write "
            f"Embedding({key_dtype}) for rows of {key_dtype} values. "
            + received(dim=dim, key_dtype=key_dtype)
        )
    if dim is not None and "output_dim" in arguments:
        raise TypeError(
            "Pass `dim` or `output_dim`, not both: a table needs no number of rows. "
            + received(dim=dim, output_dim=arguments["output_dim"])
        )
    if "string" in str(arguments.get("dtype")):
        raise TypeError(
            "`dtype` must be the dtype of the rows: pass key_dtype=tf.string for string ids. "
            + received(dtype=arguments["dtype"])
        )
    for name, advice in _REFUSED.items():
        if arguments.pop(name, None) is not None:
            raise TypeError(f"{advice} Received: {name}.")
    for name, own in _OURS.items():
        if name not in arguments:
            continue
        value = arguments.pop(name)
        holder = given if own in given else arguments
        if holder.get(own) not in (None, "auto"):
            raise TypeError(
                f"Pass `{own}` or `{name}`, not both. {received(**{own: holder[own], name: value})}"
            )
        holder[own] = value
    if arguments.pop("mask_zero", False):
        if not tf.as_dtype(key_dtype).is_integer or given["mask_key"] is not None:
            raise TypeError(
                "`mask_zero` needs integer ids and no `mask_key`: name the id that means padding "
                f"by `mask_key` alone. {received(key_dtype=key_dtype, mask_zero=True)}"
            )
        given["mask_key"] = 0
    if given["dim"] is None:
        raise TypeError("`dim` must be the number of values per row. Received: no `dim`.")
    return given


def for_table(arguments: dict[str, Any]) -> dict[str, Any]:
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
