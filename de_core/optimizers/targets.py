"""Separates an optimizer's gradients of tables from its gradients of ordinary variables.

A table's gradient is the gradient of its *anchor*, the empty variable that stands for the table.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import tensorflow as tf

from de_core.base.checks import received
from de_core.base.types import Gradient, GradientPair, Scalar, TrainedVariable
from de_core.optimizers import clipping
from de_core.tables.sharded import ShardedTable, living
from de_core.tables.spec import arithmetic_dtype
from de_core.variable.anchor import table_of, tensor_variable
from de_core.variable.own_optimizer import optimizer_of
from de_core.variable.trainable_wrapper import TrainableWrapper
from de_core.variable.variable import Variable


class Targets(NamedTuple):
    """The gradients of one step.

    Attributes:
        trained: Pairs of a gradient and its table, for tables with a gradient.
        dense: Pairs of a gradient, or None, and its ordinary variable.
        owned: Pairs of a gradient and the optimizer of its table, for tables that have their own.
    """

    trained: list[tuple[tf.IndexedSlices, ShardedTable]]
    dense: list[GradientPair]
    owned: list[tuple[tf.IndexedSlices, Any]]

    @classmethod
    def of(
        cls, gradients: Iterable[Gradient | None], variables: Iterable[TrainedVariable]
    ) -> Targets:
        """Separates gradients of tables from others. Leaves out tables that are not trainable.

        Raises:
            TypeError: A table's values are not floating-point numbers, the ids of its gradient
                do not have its key dtype, or its gradient is dense.
            ValueError: A gradient's width is not the table's `dim`, a table has several gradients,
                or the numbers of gradients and variables differ.
            RuntimeError: A table came with a SavedModel or a MetaGraph.
        """
        targets = cls([], [], [])
        for gradient, variable, table in once_per_table(gradients, variables):
            if table is None:
                is_sparse = isinstance(gradient, tf.IndexedSlices)
                if is_sparse and variable.shape.rank and variable.shape[0] == 0:
                    raise RuntimeError(
                        "A new optimizer must train tables that this process created. "
                        f"Received: a gradient for the imported variable {variable.name!r} of "
                        f"shape={variable.shape}. The tables of a SavedModel are read-only: train "
                        "the model itself, with the rows of a checkpoint or a .keras file, or "
                        "leave the loaded variable out. For a MetaGraph, run its own training op, "
                        "or build the graph with the original code and restore its variables."
                    )
                targets.dense.append((gradient, variable))
            elif isinstance(gradient, tf.IndexedSlices):
                own = optimizer_of(anchor_of(variable))
                if own is not None:
                    targets.owned.append((gradient, own))
                elif getattr(variable, "trainable", True):
                    targets.trained.append((gradient, table))
            elif gradient is not None:
                check_nothing(gradient, table)
        return targets

    @classmethod
    def of_pairs(cls, grads_and_vars: Iterable[GradientPair]) -> Targets:
        """Separates pairs of a gradient and its variable, like `of`."""
        pairs = list(grads_and_vars)
        targets = cls.of((gradient for gradient, _ in pairs), (variable for _, variable in pairs))
        if targets.owned:
            raise TypeError(
                "A table with an optimizer of its own must be trained by an optimizer of Keras 3. "
                f"Received: gradients for {len(targets.owned)} such tables. Make the tables "
                "without `optimizer`, or wrap a keras.optimizers.Optimizer."
            )
        targets.require_one()
        return targets

    @property
    def others(self) -> list[GradientPair]:
        """Pairs of a gradient and its ordinary variable. Omits variables without a gradient."""
        return [(gradient, variable) for gradient, variable in self.dense if gradient is not None]

    def require_finite(self, rejected: tf.Variable) -> list[tf.Operation]:
        """Refuses a step whose gradients hold a NaN or an infinity.

        The variable `rejected` counts the refused steps.

        Returns:
            In a graph, the check that must run before the step. In eager mode, an empty list: the
            check has run.

        Raises:
            tf.errors.InvalidArgumentError: In eager mode, if a gradient is not finite.
        """
        pairs = [*self.trained, *self.dense, *self.owned]
        gradients = [each for each, _ in pairs if each is not None]
        finite = clipping.is_finite(gradients)
        message = (
            "Gradients must be finite under `reject_nonfinite=True`; nothing was changed. "
            "Received: a NaN or an infinity in a gradient."
        )
        counted = rejected.assign_add(tf.cast(tf.logical_not(finite), rejected.dtype))
        with tf.control_dependencies([counted]):
            check = tf.debugging.Assert(finite, [message, counted])
        return [] if check is None else [check]

    def scaled(self, factor: Scalar) -> Targets:
        """Returns all gradients times a scalar."""
        return Targets(
            [(clipping.scaled(gradient, factor), table) for gradient, table in self.trained],
            [
                (None if gradient is None else clipping.scaled(gradient, factor), variable)
                for gradient, variable in self.dense
            ],
            [(clipping.scaled(gradient, factor), own) for gradient, own in self.owned],
        )

    def require_replica(self) -> None:
        """Raises RuntimeError if Keras cannot update ordinary variables here.

        In the scope of a strategy, but outside of `strategy.run`, Keras 3.15 and tf_keras 2.21 call
        `merge_call` of None.
        """
        if tf.distribute.in_cross_replica_context() and any(
            gradient is not None for gradient, _ in self.dense
        ):
            raise RuntimeError(
                "A step that trains a model under a distribution strategy must run inside of "
                f"`strategy.run`. Received: a step outside of it, under "
                f"{type(tf.distribute.get_strategy()).__name__}. Call strategy.run(step, "
                "args=(...)) in the function that you schedule or call."
            )

    def require_one(self) -> None:
        """Raises ValueError if no variable has a gradient."""
        if not (self.trained or self.owned) and all(each is None for each, _ in self.dense):
            names = [variable.name for _, variable in self.dense]
            never = [each.name for each in living() if not each.spec.value_dtype.is_floating]
            remedy = ""
            if never:
                remedy = (
                    " Lookups of integer tables have no gradient. To train one, make it with "
                    f"value_dtype=tf.float32. The integer tables here are {never}."
                )
            raise ValueError(
                "At least one variable must have a gradient. Received: none for any table, none "
                f"for variables={names}. Check that the loss depends on the variables.{remedy}"
            )


def once_per_table(
    gradients: Iterable[Gradient | None], variables: Iterable[TrainedVariable]
) -> list[tuple[Gradient | None, TrainedVariable, ShardedTable | None]]:
    """Returns gradients with their variables and tables, the gradient of each table once.

    A tape returns one gradient for a table's anchor and for every wrapper of a lookup of that
    table. A list of trainable variables and wrappers therefore repeats this gradient.

    Raises:
        ValueError: A table has several different gradients, or the numbers of gradients and
            variables differ.
    """
    gradients, variables = list(gradients), list(variables)
    if len(gradients) != len(variables):
        raise ValueError(
            "There must be one gradient per variable, None for a variable without a gradient. "
            f"Received: {len(gradients)} gradients for {len(variables)} variables."
        )
    found: dict[int, tf.IndexedSlices] = {}
    targets: list[tuple[Gradient | None, TrainedVariable, ShardedTable | None]] = []
    for gradient, variable in zip(gradients, variables, strict=True):
        table = table_under(variable)
        if table is not None and isinstance(gradient, tf.IndexedSlices):
            first = found.get(id(table))
            if first is None:
                found[id(table)] = gradient
            elif first.values is gradient.values and first.indices is gradient.indices:
                continue
            else:
                raise ValueError(
                    "A table must have one gradient in a step. Received: two different ones for "
                    f"table {table.name!r}. Pass either its trainable variable or one wrapper of "
                    "a lookup, and first add up the gradients of several losses."
                )
            gradient = checked(gradient, table)
        targets.append((gradient, variable, table))
    return targets


def table_under(variable: object) -> ShardedTable | None:
    """Returns the table that a variable stands for, or None for an ordinary variable."""
    if isinstance(variable, TrainableWrapper) and not variable.trainable:
        variable = variable.params  # A table that is not trainable has no anchor.
    table = variable._table if isinstance(variable, Variable) else table_of(variable)
    if table is not None and not table.spec.value_dtype.is_floating:
        raise TypeError(
            "A table under an optimizer must hold floating-point values. "
            + received(table=table.name, value_dtype=table.spec.value_dtype.name)
            + " Make it with value_dtype=tf.float32, or leave it out of the optimizer's variables."
        )
    return table


def anchor_of(
    variable: TrainedVariable | Variable | TrainableWrapper,
) -> TrainedVariable | None:
    """Returns the anchor of a `de.Variable` or of a lookup's wrapper.

    Returns None if the table is not trainable, and any other variable unchanged.
    """
    if isinstance(variable, TrainableWrapper):
        variable = variable.params
    if not isinstance(variable, Variable):
        return variable
    return next(iter(variable.trainable_variables), None)


def filled_by_loss(loss: Any, var_list: Any) -> tuple[Any, Any]:
    """Returns the loss and the variables to differentiate, for an optimizer's `minimize`.

    The loss may be a function that adds variables to `var_list`. `var_list` may be a function that
    returns variables.

    Returns:
        `loss`, and the `tf.Variable`s without tables that are not trainable: a function if
        `var_list` is one, otherwise a list that has the added variables too once the loss was
        called.
    """
    variables = _to_differentiate(var_list)
    if not callable(loss) or not isinstance(var_list, list):
        return loss, variables

    def loss_and_variables() -> Any:
        value = loss()
        variables[:] = _to_differentiate(var_list)
        return value

    return loss_and_variables, variables


def _to_differentiate(var_list: Any) -> Any:
    if callable(var_list):
        return lambda: _to_differentiate(var_list())
    anchors = [anchor_of(each) for each in tf.nest.flatten(var_list)]
    return [
        each if table_of(each) is None else tensor_variable(each)
        for each in anchors
        if each is not None
    ]


def checked(gradient: tf.IndexedSlices, table: ShardedTable) -> tf.IndexedSlices:
    """Returns the gradient of a table in the dtype in which the table computes."""
    ids, wanted = gradient.indices.dtype, table.spec.key_dtype
    if ids != wanted and not (ids.is_integer and wanted.is_integer):
        raise TypeError(
            f"The ids of a table's gradient must be of its key dtype, {wanted.name}. "
            f"Received: ids of {ids.name} for table {table.name!r}."
        )
    if not gradient.values.shape[1:].is_compatible_with([table.spec.dim]):
        raise ValueError(
            f"A table's gradient must have the shape [ids, dim], dim={table.spec.dim}. "
            f"Received: shape={gradient.values.shape} for table {table.name!r}."
        )
    real = arithmetic_dtype(table.spec.value_dtype)
    if gradient.dtype == real:
        return gradient
    return clipping.with_values(gradient, tf.cast(gradient.values, real))


def check_nothing(gradient: tf.Tensor, table: ShardedTable) -> None:
    """Raises TypeError if a dense gradient of a table has rows."""
    # In a branch that does not use the table, TensorFlow makes a dense gradient with no rows.
    if tf.convert_to_tensor(gradient).shape[:1].is_compatible_with([0]):
        return
    raise TypeError(
        "A table's gradient must be the tf.IndexedSlices that a tape returns. Received: a dense "
        f"gradient of shape={gradient.shape} for table {table.name!r}. To change a gradient, make "
        "a tf.IndexedSlices of the changed values and the same indices."
    )
