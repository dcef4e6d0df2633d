"""The parts that the optimizers of tables share between Keras 3 and tf_keras."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

import tensorflow as tf

from de_core.base.types import TrainedVariable
from de_core.checkpoint import ancestor
from de_core.optimizers.targets import own_optimizer_of, table_under
from de_core.tables.sharded import ShardedTable


def is_eager_outside() -> bool:
    """Returns whether the caller runs eagerly or in a `tf.function` that eager code calls."""
    with tf.init_scope():
        return bool(tf.executing_eagerly())


class Decaying:
    """A mixin for weight decay that leaves out chosen variables.

    In the list of base classes, name it before Keras's optimizer class.
    """

    inner_optimizer: Any
    _not_decayed: tuple[re.Pattern[str], ...] = ()

    def exclude_from_weight_decay(
        self,
        var_list: Sequence[TrainedVariable] | None = None,
        var_names: Sequence[str] | None = None,
    ) -> None:
        """Leaves variables and tables out of the weight decay. Call it before the first step.

        Args:
            var_list: Ordinary variables and `de.Variable`s.
            var_names: Regular expressions. A variable or table is left out if one of them matches
                a part of its name.
        """
        dense, patterns = [], list(var_names or ())
        for variable in var_list or ():
            table = table_under(variable)
            if table is None:
                dense.append(variable)
            else:
                patterns.append(f"^{re.escape(table.name)}$")
        self._not_decayed = (*self._not_decayed, *map(re.compile, patterns))
        self.inner_optimizer.exclude_from_weight_decay(dense or None, var_names)

    def _is_decayed(self, table: ShardedTable) -> bool:
        return not any(pattern.search(table.name) for pattern in self._not_decayed)


class Wrapping:
    """A mixin that wraps another optimizer.

    In the list of base classes, name it before Keras's optimizer class.
    """

    inner_optimizer: Any
    _tables: list[ShardedTable]
    _made_eagerly: bool

    def _require_own_mode(self) -> None:
        """Raises RuntimeError in a TensorFlow 1 graph if the variables were made eagerly."""
        if self._made_eagerly and not is_eager_outside():
            raise RuntimeError(
                "A Keras optimizer must be made in the graph of TensorFlow 1 that it trains in. "
                f"Received: {type(self.inner_optimizer).__name__} with variables of eager mode. "
                "Make it, and the optimizer that it wraps, inside `with graph.as_default():`."
            )

    @property
    def _slots_number(self) -> tf.Tensor:
        """The number that identifies this optimizer's slots in the tables, an int64 scalar.

        The number is saved with the optimizer. A restored optimizer thus finds its slots, and a
        new optimizer starts with new slots.
        """
        raise NotImplementedError

    def _wrapped(self) -> Any:
        return self.inner_optimizer

    def _checkpoint_adapter(self, path: str | None) -> None:
        """Refuses a checkpoint with tables of tfra. TensorFlow calls it on restore."""
        ancestor.refuse(path)

    def _add_table(self, table: ShardedTable) -> None:
        if table not in self._tables:
            self._tables = [*self._tables, table]

    def _build_others(self, variables: Iterable[TrainedVariable]) -> list[TrainedVariable]:
        """Adds the tables, and builds the wrapped optimizer for the ordinary variables.

        Leaves out tables that have an optimizer of their own.

        Args:
            variables: All trainable variables, anchors included.

        Returns:
            The ordinary variables.
        """
        dense = []
        for variable in variables:
            table = table_under(variable)
            if table is None:
                dense.append(variable)
            elif own_optimizer_of(variable) is None:
                self._add_table(table)
        self.inner_optimizer.build(dense)
        return dense

    @property
    def tables(self) -> list[ShardedTable]:
        """The tables that the optimizer was built for or has trained."""
        return list(self._tables)

    @property
    def slots_owner(self) -> tf.Tensor:
        """The name under which the tables keep this optimizer's slots, a scalar string tensor."""
        family = type(self._wrapped()).__name__.lower()
        return tf.strings.join([family, tf.strings.as_string(self._slots_number)], "_")

    @property
    def learning_rate(self) -> tf.Variable | float:
        """The wrapped optimizer's learning rate."""
        return self.inner_optimizer.learning_rate

    @learning_rate.setter
    def learning_rate(self, learning_rate: Any) -> None:
        self.inner_optimizer.learning_rate = learning_rate

    def _overwrite_is_due(self) -> tf.Tensor | None:
        """Returns whether this step overwrites the rows by their averages; None if no step does."""
        inner = self.inner_optimizer
        if not (getattr(inner, "use_ema", False) and inner.ema_overwrite_frequency):
            return None
        return tf.equal((inner.iterations + 1) % inner.ema_overwrite_frequency, 0)

    def _take_averages_after(self, done: list[tf.Operation | None], due: tf.Tensor | None) -> None:
        """Overwrites the rows by their averages if that is due.

        Args:
            done: The operations that must run first.
            due: The result of `_overwrite_is_due` before the step.
        """
        if due is None:
            return
        with tf.control_dependencies(done):
            tf.cond(due, self._take_averages, lambda: None)

    def _take_averages(self) -> None:
        for table in self._tables:
            table.take_averages(self.slots_owner)

    def finalize_variable_values(self, var_list: Iterable[TrainedVariable]) -> None:
        """Finishes training: with `use_ema`, overwrites variables and rows by their averages.

        Args:
            var_list: The model's trainable variables.
        """
        dense = [each for each in var_list if table_under(each) is None]
        if self.inner_optimizer.use_ema:
            self._take_averages()
        self.inner_optimizer.finalize_variable_values(dense)
