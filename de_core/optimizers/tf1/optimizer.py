"""The TensorFlow 1 optimizer for models with dynamic tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import tensorflow as tf

from de_core.base.checks import received
from de_core.base.no_autograph import no_autograph
from de_core.base.types import GradientPair, TrainedVariable
from de_core.optimizers import rules
from de_core.optimizers.gathered_rows import ChangedCopy, Copies, GatheredRows, changed_copy
from de_core.optimizers.rules import Plan
from de_core.optimizers.steps import TrainsTables
from de_core.optimizers.targets import Targets, filled_by_loss
from de_core.tables.sharded import ShardedTable
from de_core.variable.trainable_wrapper import TrainableWrapper

# The graph collection with the names under which the graph's optimizers keep their slots.
_OWNERS = "dynamic_embedding_slot_owners"
_eager_owners: list[str] = []
# A subclass that overrides one of these methods has another formula.
_FORMULA = ("_resource_apply_dense", "_prepare", "_finish")
_SLOTS = {
    "tf1_momentum": ["momentum"],
    "adagrad": ["accumulator"],
    "adagrad_da": ["gradient_accumulator", "gradient_squared_accumulator"],
    "adadelta": ["accum_grad", "accum_var"],
    "adam": ["m", "v"],
    "ftrl": ["accumulator", "linear"],
    "proximal_adagrad": ["accumulator"],
}


class Tf1Optimizer(TrainsTables, tf.compat.v1.train.Optimizer):
    """A `tf.compat.v1.train.Optimizer` that also trains dynamic tables.

    `DynamicEmbeddingOptimizer` makes it. `compute_gradients`, `apply_gradients` and `minimize` take
    the arguments of the wrapped optimizer. The wrapped optimizer updates ordinary variables.

    Raises:
        NotImplementedError: `optimizer` has no rule inside the tables, and no formula for dense
            gradients.
    """

    _counting_rule = "adam"

    def __init__(
        self,
        optimizer: tf.compat.v1.train.Optimizer,
        bp_v2: bool = False,
        reject_nonfinite: bool = False,
        name: str | None = None,
    ) -> None:
        super().__init__(use_locking=False, name=name or optimizer.get_name())
        train = tf.compat.v1.train
        base, other = train.Optimizer, "_apply_dense"
        rule = rules.rule_of(optimizer, rules.TF1, [train], _FORMULA, base, other)
        self._start(optimizer, rule, Tf1Copies, bp_v2, reject_nonfinite)
        self._count: tf.Variable | None = None
        self._rejected: tf.Variable | None = None
        scope = self.get_name().replace("/", "_")
        # Two optimizers with one name must not share slots.
        self._owner = _unique(scope)

    def compute_gradients(
        self,
        loss: tf.Tensor | Callable[[], tf.Tensor],
        var_list: Sequence[TrainedVariable | TrainableWrapper] | None = None,
        **options: Any,
    ) -> list[GradientPair]:
        """Returns pairs of a gradient and its variable. The variable of a table is its anchor.

        Args:
            loss: See `tf.compat.v1.train.Optimizer.compute_gradients`.
            var_list: Ordinary variables, anchors, `de.Variable`s and wrappers of lookups; None for
                all trainable variables. Tables that are not trainable are left out.
            **options: See `tf.compat.v1.train.Optimizer.compute_gradients`.
        """
        if var_list is not None:
            loss, var_list = filled_by_loss(loss, var_list)
        return super().compute_gradients(loss, var_list, **options)

    @no_autograph
    def apply_gradients(
        self,
        grads_and_vars: Iterable[GradientPair],
        global_step: tf.Variable | None = None,
        name: str | None = None,
    ) -> tf.Operation | None:
        """Does one step.

        Args:
            grads_and_vars: Pairs of a gradient, or None, and its variable.
            global_step: A variable to increment after the step, or None.
            name: Name of the operation.

        Returns:
            The operation; None in eager mode.

        Raises:
            TypeError: A table's values are not floating-point numbers.
            ValueError: No variable has a gradient.
        """
        targets = Targets.of_pairs(grads_and_vars)
        for gradient, table in targets.trained:
            values = gradient.values
            is_symbolic = tf.is_symbolic_tensor(values)
            if is_symbolic and values.op.type == "SparseAccumulatorTakeGradient":
                raise NotImplementedError(
                    "TensorFlow's SyncReplicasOptimizer must not train tables. It divides a row's "
                    "gradient by the number of replicas that have the row, not by the number of "
                    f"all replicas. Received: such a gradient for table {table.name!r}. "
                    "Instead, use de.optimizers.SyncReplicasOptimizer."
                )
        self._admit(targets.trained)
        dense = targets.others
        checks = targets.require_finite(self.rejected_steps) if self.reject_nonfinite else []
        with tf.control_dependencies(checks):
            done = self._apply_to_tables(targets.trained)
        # If a table refuses its gradient, the step stops before it changes other variables.
        with tf.control_dependencies(done):
            if dense:
                return self.inner_optimizer.apply_gradients(dense, global_step, name)
            if global_step is not None:
                counted = tf.compat.v1.assign_add(global_step, tf.ones_like(global_step))
                done = [*done, counted.op] if not tf.executing_eagerly() else done
        return None if tf.executing_eagerly() else tf.group(*done, name=name)

    def _plan(self) -> Plan:
        inner, rule = self.inner_optimizer, self._rule
        if rule is None:
            return Plan(inner)
        name = rule.name(inner)
        step = self._next_step() if self._counts() else None
        if name == "adagrad_da":
            # AdagradDA counts steps by its global step, which is incremented after the update.
            step = tf.cast(inner._global_step, tf.int64) + 1
        return Plan(inner, rule=rule, name=name, step=step)

    def _next_step(self) -> tf.Tensor:
        """Increments the count of steps and returns it: 1 at the first step."""
        count = self.steps.assign_add(1, read_value=True)
        with tf.control_dependencies([count]):
            return tf.cast(count, tf.int64)

    @property
    def steps(self) -> tf.Variable:
        """The number of steps done, an int64 variable. Only the rule of Adam counts them."""
        if self._count is None:
            self._count = self._counter("de_steps")
        return self._count

    @property
    def rejected_steps(self) -> tf.Variable:
        """The number of steps that `reject_nonfinite` refused, an int64 variable."""
        if self._rejected is None:
            self._rejected = self._counter("de_rejected_steps")
        return self._rejected

    def _counter(self, name: str) -> tf.Variable:
        with tf.init_scope(), tf.name_scope(""):
            counter = tf.compat.v1.get_variable(
                f"{self._owner}/{name}",
                shape=[],
                dtype=tf.int64,
                initializer=tf.compat.v1.zeros_initializer(),
                trainable=False,
                use_resource=True,
            )
        return counter

    def get_slot(self, var: TrainedVariable, name: str) -> tf.Variable | None:
        """Returns the wrapped optimizer's slot of an ordinary variable, or None."""
        return self.inner_optimizer.get_slot(var, name)

    def _trackable_children(self, save_type: str = "checkpoint", **kwargs: Any) -> Any:
        """Refuses to be saved by `tf.train.Checkpoint`, which would miss a part of the state.

        Raises:
            NotImplementedError: `save_type` is "checkpoint".
        """
        if save_type == "checkpoint":
            raise NotImplementedError(
                "An optimizer of TensorFlow 1 with tables must be saved by a "
                "tf.compat.v1.train.Saver in a graph. "
                + received(optimizer=self.get_name())
                + " Use a Keras optimizer to save with tf.train.Checkpoint."
            )
        return super()._trackable_children(save_type, **kwargs)

    def get_slot_names(self) -> list[str]:
        """Returns the names of the wrapped optimizer's slots of ordinary variables."""
        return list(self.inner_optimizer.get_slot_names())

    def variables(self) -> list[tf.Variable]:
        """Returns the wrapped optimizer's variables and the counters, without slots of rows."""
        own = [each for each in (self._count, self._rejected) if each is not None]
        shared = [] if self._copies is None else self._copies.variables
        return [*own, *shared, *self.inner_optimizer.variables()]

    @property
    def slots_owner(self) -> tf.Tensor:
        """The name under which the tables keep this optimizer's slots, a scalar string tensor."""
        return tf.constant(self._owner)

    def slots_in(self, table: ShardedTable) -> dict[str, int]:
        """Returns the widths of the slots that the rule makes in a table, by the slots' names."""
        if self._copies is not None:
            return {slot.name: slot.width for slot in self._copies.rows_of(table).slots}
        assert self._rule is not None
        inner, rule = self.inner_optimizer, self._rule
        names = _SLOTS.get(rule.name(inner), [])
        if rule.name(inner) == "rmsprop":
            momentum = inner._momentum() if callable(inner._momentum) else inner._momentum
            names = ["rms", *["momentum"] * bool(momentum), *["mg"] * bool(inner._centered)]
        return dict.fromkeys(names, table.spec.dim)


def _unique(name: str) -> str:
    """Returns `name`, with a number if another optimizer has this name already.

    Optimizers of the same graph, and all optimizers of eager mode, need different names.
    """
    eager = tf.executing_eagerly()
    # An imported MetaGraph adds its optimizers' names to the collection, perhaps with a
    # scope before them.
    found = _eager_owners if eager else tf.compat.v1.get_collection_ref(_OWNERS)
    taken = {tf.compat.as_str(each).rpartition("/")[2] for each in found}
    unique, number = name, 0
    while unique in taken:
        number += 1
        unique = f"{name}_{number}"
    found.append(unique)
    return unique


class Tf1Copies(Copies):
    """One copy of an optimizer for all tables. Tables share the state that is not kept per row."""

    def __init__(self, optimizer: Any) -> None:
        super().__init__(optimizer)
        self._copy = changed_copy(
            optimizer, _OverRows, rows={}, places={}, state={}, slots_by_name={}
        )
        self._name = optimizer.get_name()

    def rows_of(self, table: ShardedTable) -> GatheredRows:
        """Returns the gathered rows and slots of one table. Creates them at the first call."""
        known: dict[int, GatheredRows] = self._copy.rows
        if id(table) not in known:
            with tf.init_scope(), tf.name_scope(f"{self._name}_rows/"):
                known[id(table)] = gathered = GatheredRows(table)
                template = gathered.template()
                for variable in (template, gathered.rows):
                    self._copy.places[id(variable)] = gathered
                self._copy.templates = [*getattr(self._copy, "templates", []), template]
                self._copy._create_slots([template])
        return known[id(table)]

    def begin(self) -> None:
        """Runs the optimizer's `_prepare`, which for example makes tensors of its settings."""
        self._copy._prepare()

    def update(self, table: ShardedTable, gradient: tf.Tensor) -> Any:
        """Changes the gathered rows and slots of a table by their gradient, [n, dim]."""
        copy, rows = self._copy, self.rows_of(table).rows
        if type(copy)._resource_apply_dense is tf.compat.v1.train.Optimizer._resource_apply_dense:
            return copy._apply_dense(gradient, rows)
        return copy._resource_apply_dense(gradient, rows)

    def end(self, done: list[Any]) -> Any:
        """Runs the optimizer's `_finish`, which for example counts steps, after all updates."""
        return self._copy._finish(done, f"{self._name}_finish")

    @property
    def variables(self) -> list[Any]:
        """The copy's variables that are not kept per row."""
        return list(self._copy.state.values())


class _OverRows(ChangedCopy):
    """A mixin that lets a copy of an optimizer make slots per row."""

    rows: dict[int, GatheredRows]
    places: dict[int, GatheredRows]
    state: dict[str, Any]
    slots_by_name: dict[tuple[int, str], Any]  # the `id()` of the rows, and the slot's name
    templates: list[tf.Variable]  # referenced here, because `places` has their `id()`s as keys

    def get_slot(self, var: Any, name: str) -> Any:
        return self.slots_by_name.get((id(self.places[id(var)]), name))

    def _get_or_make_slot(self, var: Any, val: Any, slot_name: str, op_name: str) -> Any:
        del op_name
        rows = self.places[id(var)]
        if (id(rows), slot_name) not in self.slots_by_name:
            self.slots_by_name[id(rows), slot_name] = rows.add(slot_name, val)
        return self.slots_by_name[id(rows), slot_name]

    def _get_or_make_slot_with_initializer(
        self, var: Any, initializer: Any, shape: Any, dtype: Any, slot_name: str, op_name: str
    ) -> Any:
        try:
            value = initializer(shape, dtype=dtype)
        except TypeError:
            value = initializer()
        return self._get_or_make_slot(var, value, slot_name, op_name)

    def _zeros_slot(self, var: Any, slot_name: str, op_name: str) -> Any:
        zeros = tf.zeros(var.shape, var.dtype.base_dtype)
        return self._get_or_make_slot(var, zeros, slot_name, op_name)

    def _create_non_slot_variable(self, initial_value: Any, name: str, colocate_with: Any) -> Any:
        del colocate_with
        if name not in self.state:
            self.state[name] = tf.compat.v1.Variable(
                initial_value, name=name, trainable=False, use_resource=True
            )
        return self.state[name]

    def _get_non_slot_variable(self, name: str, graph: Any = None) -> Any:
        del graph
        return self.state.get(name)

    def _non_slot_variables(self) -> Any:
        return self.state.values()
