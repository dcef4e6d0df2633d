"""Finds the values of an optimizer's variables in Keras files of this and earlier versions.

A Keras file numbers the variables. Earlier versions of this library saved `slots_id`, the number
that identifies the optimizer's slots in a table, twice in succession.
"""

from __future__ import annotations

import re
import secrets
from typing import Any

import keras
import tensorflow as tf

from de_core.base import call_stack
from de_core.base.checks import received

_LOADING = {keras.optimizers.Optimizer.load_own_variables.__code__}
_MULTI_OPTIMIZER = getattr(keras.optimizers, "MultiOptimizer", ())  # Keras 3.14 has no such class.


def numbered_values(store: Any, variables: list[Any], slots_id: Any) -> dict[str, Any]:
    """Returns the values in a Keras file for variables, by the variables' numbers.

    Args:
        store: The file's entry of an optimizer, or a dict.
        variables: The variables of the optimizer, or of the LossScaleOptimizer around it.
        slots_id: The variable that identifies the optimizer's slots.
    """
    values = [store[name] for name in sorted(filter(str.isdigit, store.keys()), key=int)]
    if len(values) == len(variables) + 1:
        values.pop(_index(variables, slots_id))
    return {str(number): value for number, value in enumerate(values)}


def as_in_the_file(variables: list[Any], slots_id: Any) -> list[Any]:
    """Returns the variables of an optimizer of tables, numbered as in the file being loaded.

    A MultiOptimizer of Keras numbers the variables of all its optimizers together. If a file has
    more variables, Keras skips the file's state with a warning. So while a MultiOptimizer reads an
    earlier file, its optimizers of tables list `slots_id` twice.

    Args:
        variables: The optimizer's variables.
        slots_id: The variable that identifies the optimizer's slots.

    Raises:
        ValueError: The earlier file assigns tables to an optimizer by a path that no table has any
            more.
    """
    frame = call_stack.nearest_of(_LOADING)
    owner = None if frame is None else frame.f_locals["self"]
    if frame is None or not isinstance(owner, _MULTI_OPTIMIZER):
        return variables
    today = len(keras.optimizers.Optimizer.variables.fget(owner))
    wrappers = 0
    for each in owner.optimizers:
        own = getattr(each, "saved_variables", None)
        today += len(each.variables if own is None else own)
        wrappers += own is not None
    if len(frame.f_locals["store"].keys()) != today + wrappers:
        return variables
    _check_paths(owner)
    index = _index(variables, slots_id)
    return [*variables[: index + 1], *variables[index:]]


def _check_paths(multi_optimizer: Any) -> None:
    """Raises if a MultiOptimizer of an earlier version chose optimizers by the path "anchor"."""
    optimizers = multi_optimizer.get_config()["optimizer_map"]
    if optimizers["class_name"] != "OptimizerMap":
        return
    keys = list(optimizers["config"]["optimizer_map"])
    for key in keys:
        if re.fullmatch(key, "anchor") and not re.fullmatch(key, "table/anchor"):
            raise ValueError(
                "The keys of an OptimizerMap must match the paths of tables, '<table>/anchor'; "
                f"earlier versions called every table 'anchor'. {received(keys=keys)} Load the "
                f"model with compile=False. Compile it with the key '.*/{key}'. Then call "
                "model.optimizer.build(model.trainable_variables) and model.load_weights(file)."
            )


def _index(variables: list[Any], slots_id: Any) -> int:
    return [id(each) for each in variables].index(id(slots_id))


def slots_id_variable() -> keras.Variable:
    """Returns a new variable with a random number, which names an optimizer's slots."""
    number = secrets.randbits(60)
    return keras.Variable(
        lambda shape, dtype: tf.fill(shape, tf.constant(number, tf.int64)),  # noqa: ARG005
        shape=(),
        dtype="int64",
        trainable=False,
        name="slots_id",
    )
