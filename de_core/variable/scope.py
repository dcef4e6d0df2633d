"""Sharing Variables by name, by the rules of `tf.compat.v1.get_variable`."""

from __future__ import annotations

import inspect
import weakref
from collections.abc import Callable, MutableMapping, Sequence
from typing import Any

import tensorflow as tf

from de_core.base.checks import received
from de_core.base.plain_python import plain_python
from de_core.tables.admission import Admission
from de_core.tables.eviction import Eviction
from de_core.tables.router import Partitioner, default_partition_fn
from de_core.tables.spec import TableSpec
from de_core.variable.graph import graph_mode, scope_defaults
from de_core.variable.variable import Variable

# In eager mode a Variable is shared as long as someone holds it, be it a function that asked for
# it; a graph keeps its own alive.
_eager: weakref.WeakValueDictionary[str, Variable] = weakref.WeakValueDictionary()
# No string, so that TensorFlow leaves the collection out of MetaGraphs.
_HELD_KEY = ("de_core", "held")


@plain_python
def get_variable(
    name: str,
    key_dtype: Any = tf.int64,
    value_dtype: Any = tf.float32,
    dim: int = 1,
    devices: Sequence[str] | None = None,
    partitioner: Partitioner | None = default_partition_fn,
    shared_name: str | None = "get_variable",
    initializer: Any = None,
    trainable: bool = True,
    checkpoint: bool = True,
    init_size: int = 0,
    kv_creator: Any = None,
    restrict_policy: Any = None,
    bp_v2: bool = False,
    short_file_name: bool = False,
    *,
    regularizer: Callable[[tf.Tensor], tf.Tensor | None] | None = None,
    collections: Sequence[str] | None = None,
    caching_device: Any = None,
    custom_getter: Callable[..., Variable] | None = None,
    admission: Admission | None = None,
    eviction: Eviction | Sequence[Eviction] | None = None,
) -> Variable:
    """Returns the Variable of this name, or makes it.

    The name is prefixed by the current `tf.compat.v1.variable_scope`. In eager mode and in
    `tf.function` an existing Variable is shared, as long as someone holds it or a function that
    asked for it; in a graph the scope's `reuse` decides, as it does
    for `tf.compat.v1.get_variable`: under True the Variable must exist, under False it must not,
    under `tf.compat.v1.AUTO_REUSE` either will do.

    The scope's `initializer` and `regularizer` stand in for those not given. Its `partitioner`
    decides the number of tables where `devices` is None, and must agree with `devices` otherwise.
    Its `custom_getter` is called with all arguments; what it leaves out stays as it was. Its
    `caching_device` has no effect: a lookup reads few rows, and those from the table itself. Its
    `dtype` has none either: pass `value_dtype`. A `constraint` is refused, because no optimizer
    would apply it.

    Args:
        name: Not empty.
        key_dtype: See `Variable`, like all further arguments.
        value_dtype: Of the rows.
        dim: Values a row.
        devices: One table is made on each.
        partitioner: Divides the keys among the tables.
        shared_name: Not used.
        initializer: What a key without a row reads as.
        trainable: Whether lookups record gradients.
        checkpoint: Whether checkpoints include the rows.
        init_size: Rows to make room for at once.
        kv_creator: The storage.
        restrict_policy: The rule of `restrict`.
        bp_v2: Kept for compatibility.
        short_file_name: Kept for compatibility.
        regularizer: The penalty on rows that are looked up.
        collections: Of a graph, that the Variable joins.
        caching_device: Without effect, as that of a scope.
        custom_getter: In place of the scope's: `f(getter, name, **arguments)`, returning what
            `getter` returns for a name and arguments.
        admission: Which keys get a row.
        eviction: Which rows go by themselves.

    Raises:
        TypeError: `name` is no string, or an argument is of a wrong type.
        ValueError: The name exists with another dtype, dim or device list; or the scope forbids to
            make or to share it; or an argument is out of range.

    Example:
    >>> import de_core as de
    >>> first = de.get_variable("shared", dim=4)
    >>> de.get_variable("shared", dim=4) is first
    True
    """
    arguments = dict(locals())
    return _in_scope(arguments.pop("name"), arguments)


@plain_python
def get_local_variable(name: str, *args: Any, **kwargs: Any) -> Variable:
    """As `get_variable`, for rows that belong to one process and are no part of the model.

    The Variable is not trainable whatever `trainable` says, joins LOCAL_VARIABLES in a graph (so
    that `tf.compat.v1.local_variables_initializer` initializes it), and is left out of checkpoints
    unless `checkpoint=True` is given.

    Args:
        name: Not empty.
        *args: Those of `get_variable`.
        **kwargs: Those of `get_variable`.

    Raises:
        TypeError: As `get_variable`.
        ValueError: As `get_variable`.

    Example:
    >>> import de_core as de
    >>> counts = de.get_local_variable("clicks", value_dtype=tf.int64)
    >>> counts.trainable, counts.checkpoint
    (False, False)
    """
    bound = inspect.signature(get_variable).bind(name, *args, **kwargs)
    bound.arguments.setdefault("checkpoint", False)
    bound.apply_defaults()
    arguments = dict(bound.arguments)
    local = tf.compat.v1.GraphKeys.LOCAL_VARIABLES
    arguments.update(trainable=False, collections=[*(arguments["collections"] or ()), local])
    return _in_scope(arguments.pop("name"), arguments)


def _in_scope(name: str, arguments: dict[str, Any]) -> Variable:
    """Returns the Variable that the current scope makes of a request."""
    if not isinstance(name, str) or not name:
        raise TypeError(f"`name` must be a non-empty string. {received(name=name)}")
    scope = tf.compat.v1.get_variable_scope()
    del arguments["caching_device"]
    custom_getter = arguments.pop("custom_getter") or scope.custom_getter
    full_name = f"{scope.name}/{name}" if scope.name else name
    arguments = scope_defaults.applied(scope, arguments, full_name)
    reuse = scope.reuse

    def getter(name: str, *args: Any, **kwargs: Any) -> Variable:
        # What a custom getter leaves out stays as it was requested.
        changed = inspect.signature(get_variable).bind_partial(name, *args).arguments
        request = {**arguments, **changed, **kwargs}
        del request["name"]
        return _get_or_make(name, reuse, request)

    if custom_getter is None:
        return getter(full_name, **arguments)
    returned: Variable = custom_getter(getter=getter, name=full_name, **arguments)
    return returned


def _get_or_make(name: str, reuse: Any, arguments: dict[str, Any]) -> Variable:
    variable = _got_or_made(name, reuse, arguments)
    if not tf.executing_eagerly():
        # The next trace of a function must find it again, though nobody else holds it.
        tf.compat.v1.get_default_graph().get_collection_ref(_HELD_KEY).append(variable)
    return variable


def _got_or_made(name: str, reuse: Any, arguments: dict[str, Any]) -> Variable:
    with tf.init_scope():
        graph = graph_mode.current()
        shared: MutableMapping[str, Variable] = _eager if graph is None else graph.shared
        existing = shared.get(name)
        if existing is not None:
            # A function is traced again and again: there, an existing Variable is always shared.
            if graph is not None and not reuse:
                raise ValueError(
                    f"Variable {name} already exists, and its variable_scope does not share it. "
                    "Set reuse=True or reuse=tf.compat.v1.AUTO_REUSE in the variable_scope. "
                    + received(name=name)
                )
            _check_same(existing, name, arguments)
            return existing
        if reuse is True:
            raise ValueError(
                f"Variable {name} does not exist, and under reuse=True it must exist. Make it "
                "first with de.get_variable, or set reuse=tf.compat.v1.AUTO_REUSE in the "
                f"variable_scope. {received(name=name)}"
            )
        shared[name] = created = Variable(name=name, **arguments)
        return created


def _check_same(existing: Variable, name: str, arguments: dict[str, Any]) -> None:
    spec = TableSpec.checked(
        *(arguments[field] for field in ("key_dtype", "value_dtype", "dim", "devices"))
    )
    difference = existing._table.spec.difference(spec)
    if difference:
        raise ValueError(
            f"Variable {name} must be requested with the properties it has, or under another "
            f"name. Received: {difference}."
        )
    policies = {field: arguments[field] for field in ("restrict_policy", "admission", "eviction")}
    if any(policies.values()) and not existing._retention.has_policies(**policies):
        raise ValueError(
            f"Variable {name} must be requested with the policies it has, with none, or under "
            f"another name; it has {existing._retention.policies()}. {received(**policies)}"
        )
