"""The anchor: the empty variable that stands for a table in gradient computations.

A table is not a tensor, so a tape cannot differentiate with respect to it. Its anchor is a variable
of shape [0, dim], and every lookup op takes the anchor as an input. The gradient with respect to
the anchor is a `tf.IndexedSlices` of the ids. A wrapped optimizer recognizes an anchor by
`table_of`. An optimizer of Keras 3 hands the gradient to the anchor's `assign`, because the anchor
has `overwrite_with_gradient`. If the table has an optimizer of its own, `assign` does its step. Any
other optimizer must fail at its first step, because the anchor has no rows:

- Optimizers of Keras 3 and tf_keras call the anchor's `assign` or `scatter_add`. Our versions of
  these methods raise an error with the remedies.
- tf_keras's legacy optimizers and the optimizers of `tf.compat.v1.train` refuse a sparse gradient
  of a variable with a constraint. Anchors of tf_keras and of TensorFlow 1 graphs have one.
- All other updates run TensorFlow's scatter ops. On the CPU these fail: no id is in [0, 0).

In a loop TensorFlow sums gradients as dense tensors, and in a branch it needs integer ids. A
table's gradient is never dense and may have string ids. So a lookup in a loop or a branch takes a
token that is created outside: a variant, whose gradient is a list of sparse gradients. TensorFlow
sums variants by our own rule. Outside, the list becomes one `tf.IndexedSlices`.

TensorFlow runs an op that takes a variable's handle on the variable's device. If the anchor is on
another task, such as a parameter server, TensorFlow would send the looked-up rows there and back.
So the lookup takes the anchor's value, which is empty.
"""

from __future__ import annotations

import functools
import re
import weakref
from typing import Any

import tensorflow as tf

from de_core.base import call_stack
from de_core.base.keras import LEGACY, keras
from de_core.base.ops import library
from de_core.base.private_names import WRITER_OF_H5_FILES
from de_core.base.types import TrainedVariable
from de_core.tables.sharded import ShardedTable
from de_core.tables.spec import arithmetic_dtype, is_remote
from de_core.variable import own_optimizer
from de_core.variable.graph import graph_saver
from de_core.variable.own_optimizer import OwnOptimizer, optimizer_of
from de_core.variable.weight_value import WeightValue, carried_by, without_rows

_TABLE = "_de_table"
# The methods that optimizers call to update a variable.
_UPDATES = ("assign_add", "assign_sub", "scatter_add", "scatter_sub", "scatter_update")
# TensorFlow has no public name for the graphs of branches and loop bodies.
_CONTROL_FLOW = ("CondBranchFuncGraph", "WhileBodyFuncGraph", "WhileCondFuncGraph")


if not LEGACY:

    class Anchor(keras.Variable):
        """The anchor for Keras 3: a weight of the layer that holds the table.

        Its path is `<table name>/anchor`.
        """

        def __init__(
            self,
            table: ShardedTable,
            trainable: bool = True,
            optimizer: OwnOptimizer | None = None,
        ) -> None:
            # Updates of an anchor must fail. TensorFlow's scatter ops on it fail only on the CPU:
            # on a GPU they ignore missing rows. So the anchor is always on the CPU.
            with keras.name_scope(_scope(table.name)), tf.device("CPU"):
                super().__init__(
                    initializer=lambda shape, dtype: tf.zeros(shape, dtype),
                    shape=(0, table.spec.dim),
                    dtype=table.spec.value_dtype.name,
                    trainable=trainable,
                    autocast=False,
                    name="anchor",
                )
            self._de_table = table
            own_optimizer.attach(optimizer, self)

        @property
        def overwrite_with_gradient(self) -> bool:
            """True: an optimizer of Keras 3 calls `assign` before it updates anything.

            Raises:
                TypeError: The caller is inside a `keras.optimizers.LossScaleOptimizer`.
                NotImplementedError: The caller accumulates gradients.
            """
            optimizer = optimizer_of(self)
            if optimizer is not None:
                optimizer.check_caller()
            return True

        def numpy(self) -> WeightValue:
            """Returns an array [0, dim] that carries the rows, for `get_weights`."""
            return WeightValue.of(self._de_table)

        def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
            """Raises ValueError. Keras calls this for .h5 files, which would lose the rows."""
            del dtype, copy
            raise without_rows(self._de_table.name, "a plain array")

        def assign(self, value: Any) -> Any:
            """Replaces the rows by those that `value` carries, or does a step by a gradient.

            Raises:
                RuntimeError: `value` is a gradient, and the table has no optimizer of its own.
                ValueError: `value` is empty and carries no rows.
                tf.errors.InvalidArgumentError: The rows have another dtype or dim.
            """
            _assign(self._de_table, optimizer_of(self), value)
            return self.value

        def _serialize_to_tensors(self) -> Any:
            """Returns the tensors for a checkpoint. Raises ValueError if a Saver calls it."""
            graph_saver.refuse_in_eager_mode(self._de_table.name)
            return super()._serialize_to_tensors()

        def _restore_from_tensors(self, restored_tensors: Any) -> Any:
            """Restores the anchor, which is empty. The table restores its rows itself."""
            if isinstance(self.value, tf.distribute.DistributedValues):
                return self.value  # Keras 3.15 would call `assign`
            return super()._restore_from_tensors(restored_tensors)


def new_anchor(table: ShardedTable, trainable: bool, optimizer: OwnOptimizer | None = None) -> Any:
    """Creates a table's anchor, a weight for the Keras version of this process.

    The anchor's value carries the rows. A table that is not trainable has an anchor too, because
    tf_keras's `export` stores only variables, and finds the shards as children of the anchor.

    Returns:
        A `keras.Variable`, or a `tf.Variable` for tf_keras.
    """
    if not LEGACY:
        return Anchor(table, trainable, optimizer)
    with tf.init_scope(), tf.name_scope(_scope(table.name)), tf.device("CPU"):
        variable = tf.Variable(
            tf.zeros([0, table.spec.dim], table.spec.value_dtype),
            trainable=trainable,
            name="anchor",
            constraint=wrap_the_optimizer_in_de_dynamic_embedding_optimizer,
        )
    # Use a weak reference: a cycle would keep the table's memory until the garbage collector runs.
    variable._trackable_children = functools.partial(_children, weakref.ref(variable), table)
    return _marked(variable, table)


def tensor_variable(anchor: TrainedVariable) -> tf.Variable | None:
    """Returns the `tf.Variable` behind an anchor, or None while Keras only infers shapes."""
    variable = anchor if isinstance(anchor, tf.Variable) else anchor.value
    if not isinstance(variable, tf.Variable):
        return None
    if table_of(variable) is not None:
        return variable
    return _marked(variable, table_of(anchor), optimizer_of(anchor))


def table_of(variable: object) -> ShardedTable | None:
    """Returns the table of an anchor, or None for a variable that is not an anchor."""
    return getattr(variable, _TABLE, None)


def anchor_tensor(anchor: tf.Variable, table: ShardedTable) -> tf.Tensor:
    """Returns the tensor that a lookup op in the current graph takes as the anchor.

    Returns:
        The anchor's resource handle. If the anchor is on another task, its value [0, dim]. In a
        branch or a loop, a token.
    """
    graph: Any = None if tf.executing_eagerly() else tf.compat.v1.get_default_graph()
    if not _is_control_flow(graph):
        return _watched(anchor, table)
    while _is_control_flow(graph):
        graph = graph.outer_graph
    spec = table.spec
    with graph.as_default():
        return library.de_loop_anchor(
            _watched(anchor, table),
            Tkeys=spec.key_dtype,
            Tvalues=arithmetic_dtype(spec.value_dtype),
            dim=spec.dim,
        )


def _watched(anchor: tf.Variable, table: ShardedTable) -> tf.Tensor:
    """Makes tapes watch the anchor, and returns its handle or its value."""
    handle = anchor.handle
    if not is_remote(handle.device or "") or table.router.is_spread:
        # To a tape this is a read, but it creates no op, unless the anchor has several replicas. A
        # read takes 2 us of each lookup, and if it becomes ready together with the lookup, another
        # thread runs the lookup.
        tf.type_spec_from_value(anchor).to_tensors(anchor)
        return handle
    if tf.is_symbolic_tensor(handle) and handle.graph is tf.compat.v1.get_default_graph():
        return handle.graph.as_graph_element(anchor)  # all lookups share one read
    return anchor.read_value()


def _is_control_flow(graph: Any) -> bool:
    return type(graph).__name__ in _CONTROL_FLOW


def wrap_the_optimizer_in_de_dynamic_embedding_optimizer(value: tf.Tensor) -> tf.Tensor:
    """Raises RuntimeError. Serves as the constraint of an anchor, which must not be updated.

    tf_keras's legacy optimizers refuse a variable with a constraint. Their error prints the name of
    this function, which says what to do.
    """
    raise RuntimeError(
        "An anchor must not be updated. Use de.DynamicEmbeddingOptimizer(optimizer). "
        f"Received: a value of shape={value.shape}."
    )


def _scope(table_name: str) -> str:
    """Returns a table's name as a Keras name scope, which allows no slashes."""
    return re.sub(r"[^A-Za-z0-9_.\-]", "_", table_name)


def _children(
    variable: weakref.ref[Any],
    table: ShardedTable,
    save_type: str = "checkpoint",
    **options: Any,
) -> dict[str, Any]:
    """Returns a tf_keras anchor's children: in a SavedModel also the shards."""
    anchor = variable()
    kind: Any = type(anchor)
    children = dict(kind._trackable_children(anchor, save_type, **options))
    return {**children, **table.in_saved_model()} if save_type == "savedmodel" else children


def _marked(
    variable: tf.Variable, table: Any, optimizer: OwnOptimizer | None = None
) -> tf.Variable:
    """Marks a `tf.Variable` as an anchor. Makes it refuse updates, and saves without the rows."""
    variable._de_table = table
    own_optimizer.attach(optimizer, variable)
    variable.overwrite_with_gradient = True  # a Keras 3 optimizer then calls `assign` first
    for update in _UPDATES:
        setattr(variable, update, functools.partial(_refuse, table.name))
    variable.assign = functools.partial(_assign, table, optimizer)
    variable.numpy = functools.partial(_value_of, table)
    graph_saver.check_when_saved(
        variable, functools.partial(graph_saver.refuse_in_eager_mode, table.name)
    )
    return variable


def _refuse(table_name: str, *_: Any, **__: Any) -> None:
    raise RuntimeError(
        "A dynamic table must have an optimizer of its own, or the model's optimizer must be "
        f"wrapped. Received: a gradient for the table {table_name!r}, which has no optimizer, in "
        'an optimizer that is not wrapped. Make the table with optimizer="adam" or another Keras '
        "optimizer, or use de.DynamicEmbeddingOptimizer(optimizer)."
    )


def _assign(
    table: ShardedTable, optimizer: OwnOptimizer | None, value: Any, *_: Any, **__: Any
) -> None:
    """Replaces a table's rows by the rows that a value carries, or does a step by a gradient."""
    snapshot = carried_by(value)
    if snapshot is not None:
        snapshot.restore(table)
    elif optimizer is not None and value is None:
        pass  # Keras's optimizers keep no moving average of a table: they assign None.
    elif optimizer is not None and (
        isinstance(value, tf.IndexedSlices) or tf.is_symbolic_tensor(value)
    ):
        optimizer.take(value)
    elif isinstance(value, tf.IndexedSlices) or 0 not in tuple(value.shape):
        _refuse(table.name)
    else:
        raise without_rows(table.name, "an empty value")


def _value_of(table: ShardedTable) -> WeightValue:
    """Returns the value of a tf_keras anchor, which carries the rows."""
    if call_stack.nearest(WRITER_OF_H5_FILES) is not None:
        raise without_rows(table.name, "a file without them")
    return WeightValue.of(table)
