"""The parts that the optimizers of tables share between Keras 3, tf_keras and TensorFlow 1."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import tensorflow as tf

from de_core.base.types import TrainedVariable
from de_core.checkpoint import ancestor
from de_core.optimizers import plan
from de_core.optimizers.clipping import Trained
from de_core.optimizers.gathered_rows import Copies, RowUpdates
from de_core.optimizers.rules import Plan, Rule, nadam_u
from de_core.optimizers.targets import own_optimizer_of, table_under
from de_core.tables.sharded import ShardedTable
from de_core.tables.spec import arithmetic_dtype
from de_core.tables.table_step import TableStep


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


class TrainsTables:
    """A mixin with the update rule of a wrapped optimizer, and the tables that it trains."""

    inner_optimizer: Any
    #: The name under which the tables keep this optimizer's slots, a scalar string tensor.
    slots_owner: Any
    #: Returns how a step updates the tables. Called once per step.
    _plan: Callable[[], Plan]
    _rule: Rule | None
    _copies: Any
    _generic: RowUpdates | None
    _tables: list[ShardedTable]

    def _start(
        self, optimizer: Any, rule: Rule | None, copies: Callable[[Any], Copies], adds: bool
    ) -> None:
        """Sets up the steps.

        Args:
            optimizer: The wrapped optimizer.
            rule: The optimizer's rule in the engine, or None.
            copies: Makes copies of the optimizer that work on gathered rows. Called without a rule.
            adds: See `RowUpdates`.
        """
        self._rule = rule
        self._copies = self._generic = None
        if rule is None:
            self._copies = copies(optimizer)
            self._generic = RowUpdates(optimizer, self._copies, adds)
        self._tables = []

    @property
    def tables(self) -> list[ShardedTable]:
        """The tables that the optimizer was built for or has trained."""
        return list(self._tables)

    def _add_table(self, table: ShardedTable) -> None:
        if table not in self._tables:
            self._tables = [*self._tables, table]

    def _is_decayed(self, table: ShardedTable) -> bool:
        """Returns whether the weight decay applies to a table."""
        del table
        return True

    def _steps_of(self, trained: Trained) -> list[TableStep]:
        """Returns the steps of tables, for `plan.run`."""
        step, owner = self._plan(), self.slots_owner
        average = step.average_momentum is not None
        vectors: dict[tuple[tf.DType, bool], tf.Tensor] = {}
        steps: list[TableStep] = []
        for gradient, table in trained:
            decayed = step.decay is not None and self._is_decayed(table)
            kind = (arithmetic_dtype(table.spec.value_dtype), decayed)
            if kind not in vectors:
                vectors[kind] = plan.vector(step, *kind)
            steps.append(TableStep(gradient, table, vectors[kind], owner, step.name, average))
        return steps

    def _apply_to_tables(self, trained: Trained) -> list[tf.Operation]:
        """Updates tables by gradients that are ready to use."""
        if not trained:
            return []
        if self._generic is None:
            done = plan.run(self._steps_of(trained))
        else:
            done = self._generic.apply(self._plan(), trained, self.slots_owner, self._is_decayed)
        return [each for each in done if each is not None]


class Wrapping(TrainsTables):
    """A mixin that wraps an optimizer of Keras 3 or tf_keras.

    In the list of base classes, name it before Keras's optimizer class.
    """

    _made_eagerly: bool
    #: The number that identifies this optimizer's slots in the tables, an int64 scalar. It is saved
    #: with the optimizer. A restored optimizer thus finds its slots.
    _slots_number: Any
    #: The product of Nadam's momenta of all steps, a `tf.Variable`.
    _product: Any
    #: Adds a variable that all rows share to the state that is saved with the optimizer.
    _keep: Callable[[Any], None]
    #: Takes the wrapped optimizer. Returns the learning rate, and the momentum of the rows' average
    #: or None for no average.
    _rate_and_average: Callable[[Any], tuple[Any, Any]]

    def _require_own_mode(self) -> None:
        """Raises RuntimeError in a TensorFlow 1 graph if the variables were made eagerly."""
        if self._made_eagerly and not is_eager_outside():
            raise RuntimeError(
                "A Keras optimizer must be made in the graph of TensorFlow 1 that it trains in. "
                f"Received: {type(self.inner_optimizer).__name__} with variables of eager mode. "
                "Make it, and the optimizer that it wraps, inside `with graph.as_default():`."
            )

    def _add_table(self, table: ShardedTable) -> None:
        is_new = table not in self._tables
        super()._add_table(table)
        if is_new and self._copies is not None:
            for variable in self._copies.shared_variables(table):
                self._keep(variable)

    def _checkpoint_adapter(self, path: str | None) -> None:
        """Refuses a checkpoint with tables of tfra. TensorFlow calls it on restore."""
        ancestor.refuse(path)

    def _plan(self) -> Plan:
        inner, rule = vars(self)["inner_optimizer"], self._rule
        rate, average = self._rate_and_average(inner)
        decay = getattr(inner, "weight_decay", None)
        if rule is None:
            return Plan(inner, rate, decay, average)
        name, step, product = rule.name(inner), tf.convert_to_tensor(inner.iterations) + 1, None
        if name == "nadam":
            product = self._product.assign(self._product * nadam_u(inner, step, tf.float32))
        return Plan(inner, rate, decay, average, rule, name, step, product)

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
    def slots_owner(self) -> tf.Tensor:
        """The name under which the tables keep this optimizer's slots, a scalar string tensor."""
        family = type(vars(self)["inner_optimizer"]).__name__.lower()
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
        inner = vars(self)["inner_optimizer"]
        if not (getattr(inner, "use_ema", False) and inner.ema_overwrite_frequency):
            return None
        return tf.equal((inner.iterations + 1) % inner.ema_overwrite_frequency, 0)

    def _take_averages(self) -> None:
        """Overwrites the rows by their averages."""
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
