"""The anchor: the empty variable that stands for a table wherever gradients are taken.

A table is no tensor, so a tape cannot differentiate with respect to it. Its anchor is a trainable
variable of shape [0, dim] that every lookup passes through; the gradient for it is the
`tf.IndexedSlices` of the ids. Optimizers must not treat it as a variable: the wrapped optimizer
recognises it (`table_of`), and any other is stopped at its first step.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import FrameType
from typing import Any

import tensorflow as tf

from de_core import call_stack, savers
from de_core._keras import LEGACY, keras
from de_core.sharded_table import ShardedTable
from de_core.weight_value import WeightValue, carried_by, without_rows

_TABLE = "_de_table"
# What an optimizer calls on a variable to change it.
_UPDATES = ("assign_add", "assign_sub", "scatter_add", "scatter_sub", "scatter_update")


if not LEGACY:

    class Anchor(keras.Variable):
        """The anchor as Keras 3 sees it: a weight of the layer that holds the table.

        Args:
            table: What it stands for.
            trainable: Whether lookups record gradients.
        """

        def __init__(self, table: ShardedTable, trainable: bool = True) -> None:
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

        @property
        def value(self) -> Any:
            """The `tf.Variable`; raises RuntimeError where a loss scale would make slots of it."""
            if call_stack.is_called_by("_var_key"):
                _stop_loss_scales(self._de_table.name)
            return super().value

        @property
        def _layout(self) -> Any:
            """Raises RuntimeError: asked for by an optimizer that makes a slot of its gradient.

            Such as one that accumulates gradients, which is no gradient of a table.
            """
            raise _not_wrapped(self._de_table.name)

        @_layout.setter
        def _layout(self, layout: Any) -> None:
            """Takes what Keras sets in its constructor, and no other place asks for."""

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
            """Returns what a checkpoint holds of it; raises ValueError where a Saver asks."""
            if savers.is_asking():
                savers.refuse_in_eager_mode(self._de_table.name)
            return super()._serialize_to_tensors()


def _stop_loss_scales(table_name: str) -> None:
    """Raises RuntimeError where Keras's loss scale builds an optimizer that was not wrapped.

    It would make a table's gradient dense, to check it, before the optimizer could refuse it. Of
    the anchor it only asks for a key.

    Args:
        table_name: Whose anchor somebody asks for a key.
    """

    def is_scale(frame: FrameType) -> bool:
        return isinstance(frame.f_locals.get("self"), keras.optimizers.LossScaleOptimizer)

    frame = call_stack.nearest(is_scale)
    if frame and not hasattr(frame.f_locals["self"].inner_optimizer, "slots_owner"):
        raise _not_wrapped(table_name)


def new_anchor(table: ShardedTable) -> Any:
    """Makes the anchor that a layer of this process's Keras tracks as its weight.

    Args:
        table: What it stands for.

    Returns:
        A `keras.Variable`, or a `tf.Variable` for tf_keras.
    """
    return _marked(_empty_variable(table), table) if LEGACY else Anchor(table)


def new_stand_in(table: ShardedTable) -> Any:
    """Makes the weight of a table that is not trained.

    Its value carries the rows, and tf_keras's `export`, which keeps variables alone, finds the
    table by it.

    Args:
        table: What it stands for.

    Returns:
        A `keras.Variable`, or a `tf.Variable` for tf_keras.
    """
    if LEGACY:
        return _marked(_empty_variable(table, trainable=False), table)
    return Anchor(table, trainable=False)


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


def _empty_variable(table: ShardedTable, trainable: bool = True) -> tf.Variable:
    with tf.init_scope():
        empty = tf.zeros([0, table.spec.dim], table.spec.value_dtype)
        return tf.Variable(empty, trainable=trainable, name="anchor")


def _marked(variable: tf.Variable, table: Any) -> tf.Variable:
    """Makes a `tf.Variable` known as an anchor, and refuse what optimizers do to variables."""
    variable._de_table = table
    variable._de_savers_check = functools.partial(savers.refuse_in_eager_mode, table.name)
    variable.overwrite_with_gradient = True  # a Keras 3 optimizer then assigns at once
    for update in _UPDATES:
        setattr(variable, update, functools.partial(_refuse, table.name))
    variable.assign = functools.partial(_assign, table)
    variable.numpy = functools.partial(_value_of, table)
    return stopping_optimizers(variable)


def stopping_optimizers(variable: tf.Variable) -> tf.Variable:
    """Makes an anchor that is a `tf.Variable` stop all optimizers before they change anything.

    Eagerly and in sessions they go past the variable's methods, to its handle. They ask for its
    constraint before, those of tf_keras for what dtype its slots are to be of, and nobody else
    asks for these.
    """
    kind = type(variable)
    if issubclass(kind, _StopsOptimizers):
        return variable
    variable.__class__ = type(kind.__name__, (_StopsOptimizers, kind), {})
    return variable


def stop_optimizers_of_loaded(graph: tf.Graph) -> None:
    """Makes the anchors in a function that came with a SavedModel stop all optimizers.

    Args:
        graph: Of the function, a gradient of whose lookups is being made.
    """
    for variable in getattr(graph, "variables", ()):
        # An anchor has its tables with it there.
        if table_of(variable) is None and hasattr(variable, "table_0"):
            stopping_optimizers(variable)


class _StopsOptimizers:
    """What optimizers ask of a variable that they are about to update."""

    name: str
    #: Raises where a Saver was given the anchor, and not the rows.
    _de_savers_check: Callable[[], None] | None = None

    @property
    def _in_graph_mode(self) -> bool:
        """Whether it is of a graph; Savers ask it of the variables that they are given."""
        if self._de_savers_check is not None and call_stack.is_called_by(*savers.ASKING):
            self._de_savers_check()
        return bool(vars(self)["_in_graph_mode"])

    def _not_wrapped(self) -> RuntimeError:
        table = table_of(self)
        if table is None and not self._in_graph_mode:
            return of_a_loaded_table(self)
        # That of a MetaGraph is known by its anchor alone.
        return _not_wrapped(self.name.partition("/anchor")[0] if table is None else table.name)

    @property
    def constraint(self) -> Any:
        """Raises RuntimeError: nothing constrains a table."""
        raise self._not_wrapped()

    @property
    def true_dtype(self) -> Any:
        """Raises RuntimeError: an anchor has no slots."""
        raise self._not_wrapped()

    def _trackable_children(self, save_type: str = "checkpoint", **options: Any) -> dict[str, Any]:
        """Brings the tables into a SavedModel: tf_keras's `export` keeps variables alone."""
        children = dict(super()._trackable_children(save_type, **options))  # type: ignore[misc]
        table = table_of(self)
        if save_type == "savedmodel" and table is not None:
            children.update(table.in_saved_model())
        return children


def _refuse(table_name: str, *_: Any, **__: Any) -> None:
    raise _not_wrapped(table_name)


def _assign(table: ShardedTable, value: Any, *_: Any, **__: Any) -> None:
    """Replaces the rows of a table by those that a value carries."""
    snapshot = carried_by(value)
    if snapshot is not None:
        snapshot.restore(table)
    elif isinstance(value, tf.IndexedSlices) or 0 not in tuple(value.shape):
        raise _not_wrapped(table.name)
    else:
        raise without_rows(table.name, "an empty value")


def _value_of(table: ShardedTable) -> WeightValue:
    """Returns the value of an anchor of tf_keras, which carries the rows."""
    if call_stack.nearest(_writes_h5) is not None:
        raise without_rows(table.name, "a file without them")
    return WeightValue.of(table)


def _writes_h5(frame: FrameType) -> bool:
    return frame.f_code.co_name == "save_subset_weights_to_hdf5_group"


def of_a_loaded_table(variable: Any) -> RuntimeError:
    """Returns the error that says that a table of a SavedModel cannot be trained.

    Args:
        variable: The loaded anchor, which has got a gradient.
    """
    return RuntimeError(
        "Tables loaded from a SavedModel are read only: train the model itself, with the rows "
        "of a checkpoint or a .keras file, or leave the loaded variable out. "
        f"Received: a gradient for {variable.name!r} of shape={variable.shape}."
    )


def _not_wrapped(table_name: str) -> RuntimeError:
    return RuntimeError(
        "The optimizer of a model with a dynamic table must be wrapped, or the table would not "
        "train: use de.DynamicEmbeddingOptimizer(optimizer). Received: a gradient for the "
        f"table {table_name!r} in an optimizer that was not wrapped."
    )
