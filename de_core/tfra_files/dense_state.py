"""Reads ordinary variables from a checkpoint of objects, and the numbers of optimizers.

`tf.train.Checkpoint.restore` cannot do this: it would match the state of tfra's optimizers with the
state of the optimizers here, which differs.
"""

from __future__ import annotations

import math
import re
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from de_core.base.checks import received
from de_core.base.types import Optimizer
from de_core.optimizers.tf1.optimizer import Tf1Optimizer
from de_core.tfra_files.readers import Tensors
from de_core.tfra_files.saved_table import escaped
from de_core.variable.anchor import table_of

_VALUE = "/.ATTRIBUTES/VARIABLE_VALUE"
_SMALLEST = 1e-30  # smaller powers lose digits
_COUNT = re.compile(r"(?:(?P<optimizer>.+)/)?(?:_iterations|iter)" + re.escape(_VALUE))


class Assignment(NamedTuple):
    """A value for an ordinary variable.

    Attributes:
        variable: The variable.
        key: The key of its tensor in the checkpoint.
        value: The value.
    """

    variable: Any
    key: str
    value: Any


def optimizer_paths(tensors: Tensors) -> list[str]:
    """Returns the paths of the checkpoint's optimizers that count their steps."""
    matches = map(_COUNT.fullmatch, tensors.shapes)
    return sorted(match["optimizer"] or "" for match in matches if match is not None)


def of_target(tensors: Tensors, target: Any, optimizer: Optimizer | None) -> list[Assignment]:
    """Returns the values of a target's ordinary variables, without the optimizer's.

    Raises:
        ValueError: The checkpoint lacks a trainable variable of the target, or has a variable that
            the target lacks, or their shapes differ.
    """
    skipped = {} if optimizer is None else _descendants(optimizer)
    nodes = _paths(tensors)
    matched = tf.train.CheckpointView(tensors.prefix).match(target)
    found, owners = [], set()
    for node, each in matched.items():
        path = nodes.get(node)
        if path is None or id(each) in skipped or table_of(each) is not None:
            continue
        owners.add(path)
        key = path + _VALUE
        if key in tensors.shapes and hasattr(each, "assign"):
            found.append(Assignment(each, key, tensors.read(key)))
    keys = {each.key for each in found}
    variables = {id(each.variable) for each in found}
    missing = [
        each.name
        for each in _descendants(target).values()
        if hasattr(each, "assign") and getattr(each, "trainable", False)
        if id(each) not in variables and id(each) not in skipped and table_of(each) is None
    ]
    # A layer that is not built has no variables yet. They would stay at their initial values.
    unused = [
        key
        for key in tensors.shapes
        if key.endswith(_VALUE) and key not in keys and not _is_of_tfra(key)
        if "/" in key.removesuffix(_VALUE)
        if key.removesuffix(_VALUE).rpartition("/")[0] in owners
    ]
    if missing or unused:
        raise ValueError(
            "The target and the checkpoint must have the same variables under the same paths. "
            f"Received: no values for {sorted(missing)}, no variables for {sorted(unused)}. Build "
            "the model as the program did that saved it, with tf_keras (TF_USE_LEGACY_KERAS=1), "
            "or pass only its tables as the target: {name: layer.table}."
        )
    return _checked(found)


def _is_of_tfra(key: str) -> bool:
    path = key.removesuffix(_VALUE)
    own = ("/shadow", "/_current_ids", "/_current_exists")  # the latter two of 0.6.0
    return "/.OPTIMIZER_SLOT/" in path or path.endswith(own) or "/shadow/" in path


def of_optimizer(
    tensors: Tensors, path: str, optimizer: Optimizer, dense: list[Assignment] | None
) -> list[Assignment]:
    """Returns the values of the wrapped optimizer's variables: steps, rates and dense slots.

    Raises:
        ValueError: The optimizer does not fit.
    """
    inner = optimizer.inner_optimizer
    start = f"{path}/" if path else ""
    if hasattr(inner, "add_slot"):  # a legacy optimizer would make its variables at the first step
        inner._create_all_weights([each.variable for each in dense or ()])
    children = {
        name: each
        for name, each in tf.train.TrackableView(inner).children(inner).items()
        if hasattr(each, "assign")
    }
    found = [
        Assignment(each, start + name + _VALUE, None)
        for name, each in children.items()
        if start + name + _VALUE in tensors.shapes
    ]
    steps = next(
        start + name + _VALUE
        for name in ("_iterations", "iter")
        if start + name + _VALUE in tensors.shapes
    )
    if all(each.variable is not inner.iterations for each in found):
        found.append(Assignment(inner.iterations, steps, None))
    for name in ("_u_product", "momentum_cache"):  # of Nadam
        if start + name + _VALUE in tensors.shapes:
            found.append(Assignment(optimizer.u_product, start + name + _VALUE, None))
    if dense is not None and hasattr(inner, "add_slot"):
        found += _legacy_slots(tensors, path, inner, dense)
    elif dense is not None:
        found += _slots(tensors, path, inner, {id(each.variable) for each in found})
    return _checked([each._replace(value=tensors.read(each.key)) for each in found])


def of_saver(tensors: Tensors, optimizer: Any) -> list[Assignment]:
    """Returns the number of steps for an optimizer, from Adam's powers and the global step."""
    inner = optimizer.inner_optimizer
    count = int(tensors.read("global_step")) if "global_step" in tensors.shapes else None
    for number in (2, 1):
        name = f"beta{number}_power"
        beta = getattr(inner, f"_beta{number}", getattr(inner, f"beta_{number}", None))
        power = float(tensors.read(name)) if name in tensors.shapes else 0.0  # beta ** (steps + 1)
        if beta is not None and power > _SMALLEST:
            steps = round(math.log(power) / math.log(beta)) - 1
            # The product of many rounded factors is not exact.
            if count is None or abs(count - steps) > steps // 100 + 1:
                count = steps
    steps_here = optimizer.steps if isinstance(optimizer, Tf1Optimizer) else inner.iterations
    return [] if count is None else [Assignment(steps_here, "global_step", count)]


def count_products(optimizer: Optimizer | None) -> None:
    """Sets the count of a new tf_keras Nadam, which multiplies its product once per step by it.

    The count is a Python number. So tf_keras 2.16 does not save it.
    """
    inner: Any = getattr(optimizer, "inner_optimizer", None)
    if hasattr(inner, "_u_product_counter"):
        inner._u_product_counter = int(inner.iterations) + 1


def _legacy_slots(
    tensors: Tensors, path: str, inner: Any, dense: list[Assignment]
) -> list[Assignment]:
    new = [key for key in _numbered(tensors, path) if tensors.shapes[key] != []]
    if new:
        raise ValueError(
            "The optimizer must be of the same kind as the checkpoint's, which is a new one of "
            "tf_keras and not a legacy one: its slots of ordinary variables fit no legacy "
            f"optimizer. {received(optimizer=inner)} Pass one of tf_keras.optimizers."
        )
    found = []
    for each in dense:
        start = f"{each.key.removesuffix(_VALUE)}/.OPTIMIZER_SLOT/{escaped(path)}/"
        for key in tensors.shapes:
            if key.startswith(start):
                slot = inner.get_slot(each.variable, key.removeprefix(start).removesuffix(_VALUE))
                found.append(Assignment(slot, key, None))
    return found


def _numbered(tensors: Tensors, path: str) -> list[str]:
    """Returns the keys of a new optimizer's variables in order. Leaves out tables' variables."""
    start = f"{path}/_variables/" if path else "_variables/"
    numbered = re.compile(re.escape(start) + r"(\d+)" + re.escape(_VALUE))
    matches = filter(None, map(numbered.fullmatch, tensors.shapes))
    keys = [match[0] for match in sorted(matches, key=lambda match: int(match[1]))]
    return [key for key in keys if tensors.shapes[key][:1] != [0]]


def _slots(tensors: Tensors, path: str, inner: Any, known: set[int]) -> list[Assignment]:
    """Pairs the slots by their order, which is the order of the trainable variables."""
    keys = _numbered(tensors, path)
    rate = getattr(inner, "_learning_rate", None)
    slots = [
        each
        for each in inner.variables
        if id(each) not in known and each is not inner.iterations and each is not rate
    ]
    if len(keys) != len(slots):
        raise ValueError(
            "The optimizer must have the slots of the ordinary variables in the checkpoint. "
            f"Received: {len(slots)} slots, and {len(keys)} in the checkpoint. Call "
            "optimizer.build(model.trainable_variables) before the import."
        )
    return [Assignment(slot, key, None) for slot, key in zip(slots, keys, strict=True)]


def _checked(assignments: list[Assignment]) -> list[Assignment]:
    for each in assignments:
        given, wanted = list(np.shape(each.value)), list(each.variable.shape)
        if given != wanted:
            raise ValueError(
                f"The variable for {each.key!r} must have its shape, {given}. "
                f"{received(variable=each.variable.name, shape=wanted)} Build the model as the "
                "program did that saved it."
            )
    return assignments


def _descendants(root: Any) -> dict[int, Any]:
    return {id(each): each for each in tf.train.TrackableView(root).descendants()}


def _paths(tensors: Tensors) -> dict[int, str]:
    """Returns the path of each object in the checkpoint, as the keys of tensors begin with it."""
    view = tf.train.CheckpointView(tensors.prefix)
    found, queue = {0: ""}, [0]
    for node in queue:
        for name, child in view.children(node).items():
            if child not in found:
                own = escaped(name)
                found[child] = f"{found[node]}/{own}" if found[node] else own
                queue.append(child)
    return found
