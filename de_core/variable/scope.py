"""`get_variable`: shares Variables by name, by the rules of `tf.compat.v1.get_variable`."""

from __future__ import annotations

import inspect
import weakref
from collections.abc import Callable, MutableMapping, Sequence
from typing import Any

import tensorflow as tf

from de_core.base.checks import received
from de_core.base.no_autograph import no_autograph
from de_core.base.types import DTypeLike, InitializerLike
from de_core.storage.creator import KVCreator
from de_core.tables.admission import Admission
from de_core.tables.eviction import Eviction
from de_core.tables.restrict import RestrictPolicy
from de_core.tables.router import Partitioner, default_partition_fn
from de_core.tables.spec import TableSpec
from de_core.tables.tier import DiskTier
from de_core.variable.graph import graph_mode
from de_core.variable.own_optimizer import OptimizerLike
from de_core.variable.retention import checked_policy
from de_core.variable.variable import Variable

# In eager mode a Variable is shared while a caller or a traced function holds a reference to it. A
# graph keeps its Variables alive itself.
_eager: weakref.WeakValueDictionary[str, Variable] = weakref.WeakValueDictionary()
# A tuple keeps the collection out of MetaGraphs: TensorFlow writes only collections with string
# keys into them.
_HELD_KEY = ("de_core", "held")
# A scope's partitioner needs a shape. A table has no height, so we use a large number of rows.
_ROWS = 2**62
_MOST_SHARDS = 1024


@no_autograph
def get_variable(
    name: str,
    key_dtype: DTypeLike = tf.int64,
    value_dtype: DTypeLike = tf.float32,
    dim: int = 1,
    devices: Sequence[str] | None = None,
    partitioner: Partitioner | None = default_partition_fn,
    shared_name: str | None = "get_variable",
    initializer: InitializerLike = None,
    trainable: bool = True,
    checkpoint: bool = True,
    init_size: int = 0,
    kv_creator: KVCreator | None = None,
    restrict_policy: type[RestrictPolicy] | None = None,
    bp_v2: bool = False,
    *,
    regularizer: Callable[[tf.Tensor], tf.Tensor | None] | None = None,
    collections: Sequence[str] | None = None,
    caching_device: object = None,
    custom_getter: Callable[..., Variable] | None = None,
    admission: Admission | None = None,
    eviction: Eviction | Sequence[Eviction] | None = None,
    optimizer: OptimizerLike | None = None,
    tier: DiskTier | None = None,
    slot_dtype: DTypeLike | None = None,
) -> Variable:
    """Returns the Variable with this name. Creates the Variable if it does not exist.

    The name of the current `tf.compat.v1.variable_scope` is prepended to `name`. In eager mode and
    in a `tf.function`, an existing Variable is returned while your program or a traced function
    holds a reference to it. In a TensorFlow 1 graph, the scope's `reuse` decides, as for
    `tf.compat.v1.get_variable`: with True the Variable must exist, with False it must not exist,
    and with `tf.compat.v1.AUTO_REUSE` both are allowed.

    The scope's properties are applied as follows:

    - `initializer`, `regularizer`: defaults for the arguments.
    - `partitioner`: its number of parts is the number of shards, and must be the number of
      `devices` if these are given.
    - `custom_getter`: called with all arguments. Arguments that it does not pass on keep their
      values.
    - `caching_device`, `dtype`: ignored. A lookup always reads the table. Pass `value_dtype`.
    - `constraint`: refused, because no optimizer would apply it.

    Args:
        name: Not empty.
        key_dtype: See `Variable`, also for the following arguments.
        value_dtype: Dtype of the rows.
        dim: Values per row.
        devices: Device of each shard.
        partitioner: Assigns keys to shards.
        shared_name: Not used.
        initializer: Defines the row that a lookup returns for a key without a row.
        trainable: Whether lookups record gradients.
        checkpoint: Whether checkpoints include the rows.
        init_size: Number of rows to reserve memory for.
        kv_creator: The storage.
        restrict_policy: Chooses the rows that `restrict` keeps.
        bp_v2: Ignored, for compatibility.
        regularizer: Returns the penalty on rows that are looked up.
        collections: Collections that the anchor joins in a TensorFlow 1 graph.
        caching_device: Ignored.
        custom_getter: Replaces the scope's `custom_getter`. A function
            `f(getter, name, **arguments)` that returns `getter(name, **arguments)`, with a name and
            arguments of its choice.
        admission: Decides which keys get a row.
        eviction: Decides which rows the table removes.
        optimizer: The table's own optimizer.
        tier: Where rows are that are not in memory.
        slot_dtype: Dtype of the optimizer slots.

    Raises:
        TypeError: `name` is not a string, or an argument has a wrong type.
        ValueError: The Variable exists with another dtype, dim, device list, policy or optimizer;
            or the scope's `reuse` forbids to create or to share it; or an argument is out of range.
        NotImplementedError: The scope has a `constraint`; or `optimizer` is given under tf_keras
            or in a TensorFlow 1 graph.

    Example:
    >>> import de_core as de
    >>> first = de.get_variable("shared", dim=4)
    >>> de.get_variable("shared", dim=4) is first
    True
    """
    arguments = dict(locals())
    return requested(arguments.pop("name"), arguments)


@no_autograph
def get_local_variable(name: str, *args: Any, **kwargs: Any) -> Variable:
    """Like `get_variable`, for rows of one process that are not part of the model.

    The Variable is never trainable: `trainable` is ignored. In a TensorFlow 1 graph the anchor
    joins LOCAL_VARIABLES, so `tf.compat.v1.local_variables_initializer` initializes it.
    Checkpoints include the rows only if you pass `checkpoint=True`.

    Args:
        name: Not empty.
        *args: As for `get_variable`.
        **kwargs: As for `get_variable`.

    Raises:
        TypeError: As for `get_variable`.
        ValueError: As for `get_variable`.

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
    return requested(arguments.pop("name"), arguments)


@no_autograph
def requested(
    name: str,
    arguments: dict[str, Any],
    kind: type[Variable] = Variable,
    may_be_new: bool = False,
) -> Any:
    """Returns the Variable for a request, with the current scope's defaults and its getter.

    Args:
        name: The name without the scope.
        arguments: All other arguments of `get_variable`, by name.
        kind: The class of a new Variable.
        may_be_new: True to create the Variable also if the scope has reuse=True.
    """
    if not isinstance(name, str) or not name:
        raise TypeError(f"`name` must be a non-empty string. {received(name=name)}")
    scope = tf.compat.v1.get_variable_scope()
    arguments.pop("caching_device", None)
    custom_getter = arguments.pop("custom_getter", None) or scope.custom_getter
    full_name = f"{scope.name}/{name}" if scope.name else name
    if scope.constraint is not None:
        raise NotImplementedError(
            f"A variable_scope with a `constraint` cannot hold the dynamic Variable {full_name}: "
            f"no optimizer would apply it to rows. {received(constraint=scope.constraint)}"
        )
    for argument in ("initializer", "regularizer"):
        if arguments.get(argument) is None:
            arguments[argument] = getattr(scope, argument)
    if scope.partitioner is not None:
        arguments["devices"] = _divided(scope.partitioner, arguments, full_name)
    reuse = tf.compat.v1.AUTO_REUSE if may_be_new and scope.reuse else scope.reuse

    def getter(name: str, *args: Any, **kwargs: Any) -> Variable:
        # Arguments that a custom getter does not pass on keep their requested values.
        changed = inspect.signature(get_variable).bind_partial(name, *args).arguments
        request = {**arguments, **changed, **kwargs}
        del request["name"]
        return _found_or_created(name, reuse, request, kind)

    if custom_getter is None:
        return getter(full_name, **arguments)
    returned: Variable = custom_getter(getter=getter, name=full_name, **arguments)
    return returned


def _divided(partitioner: Any, arguments: dict[str, Any], name: str) -> Sequence[str]:
    """Returns one device per shard. The partitioner of the scope defines the number of shards."""
    shape = tf.TensorShape([_ROWS, arguments["dim"]])
    parts = list(partitioner(shape=shape, dtype=tf.as_dtype(arguments["value_dtype"])))
    if len(parts) != 2 or parts[1] != 1 or not 1 <= parts[0] <= _MOST_SHARDS:
        raise ValueError(
            f"The partitioner of a variable_scope must divide the rows of the dynamic Variable "
            f"{name} among 1 to {_MOST_SHARDS} shards and keep each row whole. "
            f"Received: {parts} parts of a variable of shape [rows, {arguments['dim']}]. A table "
            "has no height: if the partitioner divides by size, pass it a maximum number of shards."
        )
    count, devices = int(parts[0]), arguments["devices"]
    if devices is None:
        return ["/CPU:0"] * count
    named = [devices] if isinstance(devices, str) else list(devices)
    if len(named) != count:
        raise ValueError(
            f"`devices` of Variable {name} must have one device for each of the {count} shards "
            f"that the partitioner of its variable_scope makes. {received(devices=devices)}"
        )
    return named


def _found_or_created(
    name: str, reuse: Any, arguments: dict[str, Any], kind: type[Variable]
) -> Variable:
    with tf.init_scope():
        graph = graph_mode.current()
        shared: MutableMapping[str, Variable] = _eager if graph is None else graph.shared
        variable = shared.get(name)
        if variable is not None:
            # TensorFlow may trace a function several times. So eager mode always shares.
            if graph is not None and not reuse:
                raise ValueError(
                    f"Variable {name} already exists, and its variable_scope does not share it. "
                    f"{received(name=name)} Set reuse=True or reuse=tf.compat.v1.AUTO_REUSE in the "
                    "variable_scope."
                )
            _check_same(variable, name, arguments)
        elif reuse is True:
            raise ValueError(
                f"Variable {name} does not exist, and with reuse=True it must exist. "
                f"{received(name=name)} Create it first with de.get_variable, or set "
                "reuse=tf.compat.v1.AUTO_REUSE in the variable_scope."
            )
        else:
            shared[name] = variable = kind(name=name, **arguments)
    if not tf.executing_eagerly():
        # Keep a reference in the graph: the next trace of the function must find the Variable,
        # even if nothing else holds it.
        tf.compat.v1.get_default_graph().get_collection_ref(_HELD_KEY).append(variable)
    return variable


def _check_same(existing: Variable, name: str, arguments: dict[str, Any]) -> None:
    fields = ("key_dtype", "value_dtype", "dim", "devices", "tier", "slot_dtype")
    wanted: dict[str, Any] = {name: arguments.get(name) for name in fields}
    if wanted["devices"] is None:  # a strategy may have chosen the devices
        wanted["devices"] = existing.devices
    spec = TableSpec.checked(**wanted)
    difference = existing._table.spec.difference(spec)
    if difference:
        raise ValueError(
            f"Variable {name} exists and must be requested with the same properties, or under "
            f"another name. Received: {difference}."
        )
    policies: dict[str, Any] = {
        field: arguments.get(field) for field in ("restrict_policy", "admission", "eviction")
    }
    rule = None if existing.restrict_policy is None else type(existing.restrict_policy)
    same = rule is policies["restrict_policy"] and existing._table.policy == checked_policy(
        **policies
    )
    if any(policies.values()) and not same:
        has: dict[str, Any] = {"restrict_policy": rule, "admission": existing.admission}
        has["eviction"] = list(existing.eviction)
        raise ValueError(
            f"Variable {name} exists and must be requested with the same policies, without "
            f"policies, or under another name; it has {has}. {received(**policies)}"
        )
    optimizer, own = arguments.get("optimizer"), existing.optimizer
    if optimizer is None:
        return
    if own is None:
        raise ValueError(
            f"Variable {name} exists without an optimizer and must be requested without one, or "
            f"under another name. {received(optimizer=optimizer)}"
        )
    if not own.is_like(optimizer):
        raise ValueError(
            f"Variable {name} exists and must be requested with an optimizer of the same class and "
            f"settings, without one, or under another name. {received(optimizer=optimizer)}"
        )
