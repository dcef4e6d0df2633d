"""The anchor: the empty variable that stands for a table wherever gradients are taken.

A table is no tensor, so a tape cannot differentiate with respect to it. Its anchor is a trainable
variable of shape [0, dim] that every lookup passes through. The gradient with respect to the anchor
is the `tf.IndexedSlices` of the ids. A wrapped optimizer recognises an anchor by `table_of`. Any
other optimizer fails at its first step, because the anchor has no row to update:

- Keras 3 and tf_keras call `assign` or `scatter_add`, which raise with the remedy.
- tf_keras's legacy optimizers and those of `tf.compat.v1.train` refuse a variable that has a
  constraint and a sparse gradient. Every anchor that they train in their own programs has one.
- What is left are ops that TensorFlow refuses on the CPU: no id is in the range [0, 0).
"""

from __future__ import annotations

import functools
import re
import weakref
from types import FrameType
from typing import Any

import tensorflow as tf

from de_core.base import call_stack
from de_core.base.keras import LEGACY, keras
from de_core.base.private_names import WRITER_OF_H5_FILES
from de_core.tables.sharded import ShardedTable
from de_core.variable.graph import savers
from de_core.variable.weight_value import WeightValue, carried_by, without_rows

_TABLE = "_de_table"
# The methods by which optimizers change a variable.
_UPDATES = ("assign_add", "assign_sub", "scatter_add", "scatter_sub", "scatter_update")


if not LEGACY:

    class Anchor(keras.Variable):
        """The anchor as Keras 3 sees it: a weight of the layer that holds the table.

        Its path is `<name of the table>/anchor`.

        Args:
            table: The table that it stands for.
            trainable: Whether lookups record gradients.
        """

        def __init__(self, table: ShardedTable, trainable: bool = True) -> None:
            # On a GPU TensorFlow drops updates of rows that are not there. On the CPU it refuses.
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
            # Keras then hands the gradient to `assign` before it updates anything.
            self.overwrite_with_gradient = True

        def numpy(self) -> WeightValue:
            """Returns an array [0, dim] that carries the rows, for `get_weights`."""
            return WeightValue.of(self._de_table)

        def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
            """Raises ValueError: Keras's older .h5 files ask for it and would lose the rows."""
            del dtype, copy
            raise without_rows(self._de_table.name, "a plain array")

        def assign(self, value: Any) -> Any:
            """Replaces the rows by those that `value` carries.

            Raises:
                RuntimeError: `value` is a gradient.
                ValueError: `value` carries no rows.
                tf.errors.InvalidArgumentError: Its rows are of another dtype or dim.
            """
            _assign(self._de_table, value)
            return self.value

        def _serialize_to_tensors(self) -> Any:
            """Returns the content of a checkpoint; raises ValueError if a Saver asks."""
            savers.refuse_in_eager_mode(self._de_table.name)
            return super()._serialize_to_tensors()


def new_anchor(table: ShardedTable, trainable: bool) -> Any:
    """Makes the weight that stands for a table in this process's Keras.

    Its value carries the rows. tf_keras's `export`, which keeps variables alone, finds the table by
    it, also one that is not trained.

    Args:
        table: The table.
        trainable: Whether lookups record gradients.

    Returns:
        A `keras.Variable`, or a `tf.Variable` for tf_keras.
    """
    return _empty_variable(table, trainable) if LEGACY else Anchor(table, trainable)


def tensor_variable(anchor: Any) -> tf.Variable | None:
    """Returns the `tf.Variable` behind an anchor, or None while Keras only infers shapes."""
    variable = anchor if isinstance(anchor, tf.Variable) else anchor.value
    if not isinstance(variable, tf.Variable):
        return None
    return variable if table_of(variable) is not None else _marked(variable, table_of(anchor))


def table_of(variable: Any) -> ShardedTable | None:
    """Returns the table that a variable is the anchor of, or None if it is an ordinary one.

    Args:
        variable: A `keras.Variable` or `tf.Variable` out of a list of trainable variables.
    """
    return getattr(variable, _TABLE, None)


def wrap_the_optimizer_in_de_dynamic_embedding_optimizer(value: tf.Tensor) -> tf.Tensor:
    """Raises RuntimeError: the constraint of an anchor, which nothing updates.

    tf_keras's legacy optimizers refuse a variable that has one, and print the function's name.

    Args:
        value: The anchor's.
    """
    raise RuntimeError(
        "An anchor must not be updated. Use de.DynamicEmbeddingOptimizer(optimizer). "
        f"Received: a value of shape={value.shape}."
    )


def of_an_imported_table(variable: Any) -> RuntimeError:
    """Returns the error for a gradient of a table that this process did not make.

    Args:
        variable: The anchor, out of a SavedModel or a MetaGraph.
    """
    return RuntimeError(
        "A new optimizer must train tables of the process that made them. "
        f"Received: a gradient for the imported variable {variable.name!r} of "
        f"shape={variable.shape}. Tables of a SavedModel are read only: train the model itself, "
        "with the rows of a checkpoint or a .keras file, or leave the loaded variable out. Of a "
        "MetaGraph run the training op, or build the graph by the code that made it and restore "
        "its variables."
    )


def _scope(table_name: str) -> str:
    """Returns a table's name without the slashes that would divide a path."""
    return re.sub(r"[^A-Za-z0-9_.\-]", "_", table_name)


def _empty_variable(table: ShardedTable, trainable: bool) -> tf.Variable:
    """Makes an anchor for tf_keras, which brings the tables into a SavedModel.

    tf_keras's `export` keeps variables alone.
    """
    with tf.init_scope(), tf.name_scope(_scope(table.name)), tf.device("CPU"):
        empty = tf.zeros([0, table.spec.dim], table.spec.value_dtype)
        variable = tf.Variable(
            empty,
            trainable=trainable,
            name="anchor",
            constraint=wrap_the_optimizer_in_de_dynamic_embedding_optimizer,
        )
    # A reference to itself would make the table's memory wait for the garbage collector.
    variable._trackable_children = functools.partial(_children, weakref.ref(variable), table)
    return _marked(variable, table)


def _children(
    variable: weakref.ref[Any],
    table: ShardedTable,
    save_type: str = "checkpoint",
    **options: Any,
) -> dict[str, Any]:
    anchor = variable()
    kind: Any = type(anchor)
    children = dict(kind._trackable_children(anchor, save_type, **options))
    return {**children, **table.in_saved_model()} if save_type == "savedmodel" else children


def _marked(variable: tf.Variable, table: Any) -> tf.Variable:
    """Makes a `tf.Variable` known as an anchor. It then refuses to be updated, or saved alone."""
    variable._de_table = table
    variable.overwrite_with_gradient = True  # a Keras 3 optimizer then assigns at once
    for update in _UPDATES:
        setattr(variable, update, functools.partial(_refuse, table.name))
    variable.assign = functools.partial(_assign, table)
    variable.numpy = functools.partial(_value_of, table)
    savers.check_each(variable, functools.partial(savers.refuse_in_eager_mode, table.name))
    return variable


def _refuse(table_name: str, *_: Any, **__: Any) -> None:
    raise RuntimeError(
        "The optimizer of a model with a dynamic table must be wrapped, or the table would not "
        "train: use de.DynamicEmbeddingOptimizer(optimizer). Received: a gradient for the "
        f"table {table_name!r} in an optimizer that was not wrapped."
    )


def _assign(table: ShardedTable, value: Any, *_: Any, **__: Any) -> None:
    """Replaces the rows of a table by those that a value carries."""
    snapshot = carried_by(value)
    if snapshot is not None:
        snapshot.restore(table)
    elif isinstance(value, tf.IndexedSlices) or 0 not in tuple(value.shape):
        _refuse(table.name)
    else:
        raise without_rows(table.name, "an empty value")


def _value_of(table: ShardedTable) -> WeightValue:
    """Returns the value of an anchor of tf_keras, which carries the rows."""
    if call_stack.nearest(_writes_h5) is not None:
        raise without_rows(table.name, "a file without them")
    return WeightValue.of(table)


def _writes_h5(frame: FrameType) -> bool:
    return frame.f_code.co_name == WRITER_OF_H5_FILES
