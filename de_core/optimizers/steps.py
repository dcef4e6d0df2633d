"""The parts that the optimizers of tables share between Keras 3, tf_keras and TensorFlow 1."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from de_core.base.ops import library
from de_core.base.private_names import NAMES_WITHOUT_DECAY
from de_core.base.types import TrainedVariable
from de_core.checkpoint import tfra_refusal
from de_core.distributed.request_groups import request_groups
from de_core.optimizers.clipping import Trained
from de_core.optimizers.gathered_rows import Copies, RowUpdates
from de_core.optimizers.replicas import refuse_settings, several_replicas, update_once
from de_core.optimizers.rules import Plan, Power, Rule, as_scalar, nadam_product
from de_core.optimizers.targets import anchor_of, table_under
from de_core.tables.sharded import ShardedTable, TableStep
from de_core.tables.spec import arithmetic_dtype
from de_core.variable.own_optimizer import optimizer_of


def is_eager_outside() -> bool:
    """Returns whether the caller runs eagerly or in a `tf.function` that eager code calls."""
    with tf.init_scope():
        return bool(tf.executing_eagerly())


class TrainsTables:
    """A mixin with the update rule of a wrapped optimizer, and the tables that it trains."""

    inner_optimizer: Any
    bp_v2: bool
    reject_nonfinite: bool
    #: Returns how a step updates the tables. Called once per step.
    _plan: Callable[[], Plan]
    #: The rule that counts the steps in which only ordinary variables have gradients, too.
    _counting_rule: str
    _rule: Rule | None
    _copies: Any
    _generic: RowUpdates | None
    _tables: list[ShardedTable]

    def _start(
        self,
        optimizer: Any,
        rule: Rule | None,
        copies: Callable[[Any], Copies],
        bp_v2: bool,
        reject_nonfinite: bool,
    ) -> None:
        """Sets up the steps.

        Without a rule, `copies` makes copies of the optimizer that work on gathered rows.
        """
        self.inner_optimizer = optimizer
        self.bp_v2 = bool(bp_v2)
        self.reject_nonfinite = bool(reject_nonfinite)
        self._rule = rule
        self._copies = self._generic = None
        if rule is None:
            self._copies = copies(optimizer)
            self._generic = RowUpdates(optimizer, self._copies, self.bp_v2)
        self._tables = []

    @property
    def tables(self) -> list[ShardedTable]:
        """The tables that the optimizer was built for or has trained."""
        return list(self._tables)

    @property
    def slots_owner(self) -> tf.Tensor:
        """The name under which the tables keep this optimizer's slots, a scalar string tensor."""
        raise NotImplementedError

    def _add_table(self, table: ShardedTable) -> None:
        if table not in self._tables:
            self._tables = [*self._tables, table]

    def _admit(self, trained: Trained, others: Mapping[str, object] | None = None) -> None:
        """Adds tables at their first step.

        Raises NotImplementedError if several replicas or workers train a table together, and a
        setting, or a value in `others`, does not work for several.
        """
        several = several_replicas()
        for _, table in trained:
            if table not in self._tables:
                self._add_table(table)
            if several or table.router.is_spread:
                refuse_settings(self, table, several, others or {})

    def _is_decayed(self, table: ShardedTable) -> bool:
        """Returns whether the weight decay applies to a table."""
        del table
        return True

    def _steps_of(self, trained: Trained) -> list[TableStep]:
        """Returns the steps of tables, for `_run`."""
        step, owner = self._plan(), self.slots_owner
        average = step.average_momentum is not None
        vectors: dict[tuple[tf.DType, bool], tf.Tensor] = {}
        steps: list[TableStep] = []
        for gradient, table in trained:
            decayed = step.decay is not None and self._is_decayed(table)
            kind = (arithmetic_dtype(table.spec.value_dtype), decayed)
            if kind not in vectors:
                vectors[kind] = _vector(step, *kind)
            steps.append(TableStep(gradient, table, vectors[kind], owner, step.name, average))
        return steps

    def _counts(self) -> bool:
        inner = vars(self)["inner_optimizer"]
        return self._rule is not None and self._rule.name(inner) == self._counting_rule

    def _apply_to_tables(self, trained: Trained) -> list[tf.Operation]:
        """Updates tables by gradients that are ready to use.

        Several replicas join their gradients first.
        """
        if not (trained or (self._tables and self._counts())):
            return []
        if several_replicas():
            return update_once(trained, self._apply_to_tables)
        if not trained:
            plan, eager = self._plan(), tf.executing_eagerly()
            counted = [each for each in (plan.step, plan.u_product) if each is not None]
            return [] if eager else [tf.identity(each).op for each in counted]
        if self._generic is None:
            return _run(self._steps_of(trained))
        done = self._generic.apply(self._plan(), trained, self.slots_owner, self._is_decayed)
        return [each for each in done if each is not None]


class Wrapping(TrainsTables):
    """A mixin that wraps an optimizer of Keras 3 or tf_keras.

    In the list of base classes, name it before Keras's optimizer class.
    """

    #: Keras's module `saving`.
    _saving: Any
    _made_eagerly: bool
    #: Adds a variable that all rows share to the state that is saved with the optimizer.
    _keep: Callable[[Any], None]
    #: Takes the wrapped optimizer. Returns the learning rate, and the momentum of the rows' average
    #: or None for no average.
    _rate_and_average: Callable[[Any], tuple[Any, Any]]
    #: Identifies this optimizer's slots in the tables, an int64 scalar. It is saved with the
    #: optimizer, so that a restored optimizer finds its slots.
    _slots_id: Any
    #: The product of Nadam's momenta of all steps, a float32 variable.
    u_product: Any
    _rejected: Any
    _not_decayed: tuple[ShardedTable, ...] = ()
    _counting_rule = "nadam"

    @property
    def rejected_steps(self) -> Any:
        """The number of steps that `reject_nonfinite` refused, an int64 variable."""
        return self._rejected

    def exclude_from_weight_decay(
        self,
        var_list: Sequence[TrainedVariable] | None = None,
        var_names: Sequence[str] | None = None,
    ) -> None:
        """Leaves variables and tables out of the weight decay. Call it before the first step.

        A second call replaces the first, as in Keras.

        Args:
            var_list: Ordinary variables and `de.Variable`s.
            var_names: Regular expressions. A variable or table is left out if one of them matches
                a part of its name.
        """
        given = [(variable, table_under(variable)) for variable in var_list or ()]
        dense = [variable for variable, table in given if table is None]
        self.inner_optimizer.exclude_from_weight_decay(dense or None, var_names)
        vars(self)["_not_decayed"] = tuple(table for _, table in given if table is not None)

    def _is_decayed(self, table: ShardedTable) -> bool:
        inner = vars(self)["inner_optimizer"]  # It notes the names.
        noted = tf.nest.flatten([getattr(inner, each, None) for each in NAMES_WITHOUT_DECAY])
        is_named = any(re.search(pattern, table.name) for pattern in noted if pattern)
        return not is_named and table not in self._not_decayed

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
        tfra_refusal.refuse(path)

    def _plan(self) -> Plan:
        inner, rule = vars(self)["inner_optimizer"], self._rule
        rate, average = self._rate_and_average(inner)
        decay = getattr(inner, "weight_decay", None)
        if rule is None:
            return Plan(inner, rate, decay, average)
        name, step = rule.name(inner), tf.convert_to_tensor(inner.iterations) + 1
        product = nadam_product(self.u_product, inner) if name == "nadam" else None
        return Plan(inner, rate, decay, average, rule, name, step, product)

    def _build_others(self, variables: Iterable[TrainedVariable]) -> list[TrainedVariable]:
        """Adds the tables, and builds the wrapped optimizer for the ordinary variables.

        Returns the ordinary variables. Leaves out tables that have an optimizer of their own.
        """
        dense = []
        for variable in variables:
            table = table_under(variable)
            if table is None:
                dense.append(variable)
            elif optimizer_of(anchor_of(variable)) is None:
                self._add_table(table)
        self.inner_optimizer.build(dense)
        return dense

    @property
    def slots_owner(self) -> tf.Tensor:
        """The name under which the tables keep this optimizer's slots, a scalar string tensor."""
        family = type(vars(self)["inner_optimizer"]).__name__.lower()
        number = tf.strings.as_string(tf.convert_to_tensor(self._slots_id))
        return tf.strings.join([family, number], "_")

    @property
    def iterations(self) -> Any:
        """The number of steps that the wrapped optimizer has done."""
        return self.inner_optimizer.iterations

    @iterations.setter
    def iterations(self, variable: Any) -> None:
        self.inner_optimizer.iterations = variable

    @property
    def learning_rate(self) -> tf.Variable | float:
        """The wrapped optimizer's learning rate."""
        return self.inner_optimizer.learning_rate

    @learning_rate.setter
    def learning_rate(self, learning_rate: Any) -> None:
        self.inner_optimizer.learning_rate = learning_rate

    def _overwrite(self, done: list[Any]) -> None:
        """Overwrites the rows by their averages after the operations `done`, if this step must."""
        inner = vars(self)["inner_optimizer"]
        if not (getattr(inner, "use_ema", False) and inner.ema_overwrite_frequency):
            return
        is_due = tf.equal((inner.iterations + 1) % inner.ema_overwrite_frequency, 0)
        with tf.control_dependencies(done):
            tf.cond(is_due, self._take_averages, lambda: None)

    def _take_averages(self) -> None:
        """Overwrites the rows by their averages."""
        for table in self._tables:
            table.each(library.de_table_take_averages, self.slots_owner)

    def finalize_variable_values(self, var_list: Iterable[TrainedVariable]) -> None:
        """Finishes training: with `use_ema`, overwrites variables and rows by their averages.

        Args:
            var_list: The model's trainable variables.
        """
        dense = [each for each in var_list if table_under(each) is None]
        if self.inner_optimizer.use_ema:
            self._take_averages()
        self.inner_optimizer.finalize_variable_values(dense)

    def get_config(self) -> dict[str, Any]:
        """Returns the configuration for `from_config`, which makes an equal optimizer."""
        return {
            "name": self.name,  # type: ignore[attr-defined]
            "optimizer": self._saving.serialize_keras_object(self.inner_optimizer),
            "bp_v2": self.bp_v2,
            "reject_nonfinite": self.reject_nonfinite,
        }


def _vector(plan: Plan, dtype: tf.DType, decayed: bool) -> tf.Tensor:
    """Returns the hyperparameters of a step in the engine's form, float64 [k].

    If only the learning rate and powers change between steps, one op computes all of them.
    """
    values = [] if plan.rule is None else plan.rule.settings(plan, dtype)
    if decayed:
        values.append(plan.decay)
    if plan.average_momentum is not None:
        values.append(plan.average_momentum)
    constants, powers = [0.0], []
    step: Any = 0
    for place, value in enumerate(values[1:], 1):
        if isinstance(value, Power):
            powers.append(place)
            step = value.step
            value = value.base
        if not isinstance(value, (bool, int, float)):
            values = [each.value(dtype) if isinstance(each, Power) else each for each in values]
            return tf.stack([as_scalar(each, tf.float64) for each in values])
        constants.append(float(value))
    rate: Any = values[0]
    if isinstance(rate, (bool, int, float)):
        rate = as_scalar(rate, tf.float64)
    rate = tf.convert_to_tensor(rate)
    return library.de_step_settings(
        rate if rate.dtype in (tf.float32, tf.float64) else tf.cast(rate, tf.float32),
        tf.cast(step, tf.int64),
        tf.constant(constants, tf.float64),
        powers=powers,
        Tpowers=dtype,
    )


def _run(steps: list[TableStep]) -> list[tf.Operation]:
    """Updates tables, of one or several optimizers, and returns the operations; none if eager.

    Tables in other processes share their requests. One op updates all tables of an optimizer in
    memory of one device.
    """
    groups: dict[Hashable, list[TableStep]] = {}
    remote: list[TableStep] = []
    operations: list[tf.Operation | None] = []
    for step in steps:
        table = step.table
        if table.is_remote:
            remote.append(step)
        elif table.is_one and table.tables[0].pools:
            kind = table.spec.devices[0], step.rule, id(step.owner), step.average
            groups.setdefault(kind, []).append(step)
        else:
            operations.append(step.run())
    for chosen in groups.values():
        operations += [chosen[0].run()] if len(chosen) == 1 else _run_at_once(chosen)
    if remote:
        for carrier, numbers in request_groups(step.table for step in remote):
            chosen = [remote[number] for number in numbers]
            operations += carrier.apply(chosen)
    return [each for each in operations if each is not None]


def run_owned(owned: Iterable[tuple[tf.IndexedSlices, Any]]) -> None:
    """Does a step of each optimizer of one table.

    Takes pairs of a gradient without a loss scale, and the table's optimizer. Tables in other
    processes share their requests.
    """
    begun: list[Any] = []
    steps: list[TableStep] = []
    for gradient, own in owned:
        of_table = own.begin(gradient)
        if of_table is not None:
            begun.append(own)
            steps += of_table
    done = _run(steps)
    if len(done) > 1:
        done = [tf.group(*done)]  # a server then sends one signal, not one to each optimizer
    for own in begun:
        own.end(done)


def _run_at_once(steps: list[TableStep]) -> list[tf.Operation | None]:
    """Updates tables of one device and one optimizer by one op."""
    keys = [step.keys for step in steps]
    vectors = list({id(step.settings): step.settings for step in steps}.values())
    numbers = {id(each): number for number, each in enumerate(vectors)}
    first = steps[0]
    with tf.device(first.table.spec.devices[0]):
        done = library.de_tables_apply(
            [step.table.tables[0].resource_handle for step in steps],
            keys,
            [step.gradient.values for step in steps],
            vectors,
            first.owner,
            settings_of=[numbers[id(step.settings)] for step in steps],
            rule=first.rule,
            average=first.average,
        )
    heard = [
        step.table.updated(own, done)
        for own, step in zip(keys, steps, strict=True)
        if step.table.on_update is not None
    ]
    return [done, *heard]
