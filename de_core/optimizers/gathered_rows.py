"""Runs any optimizer's own code on the gathered rows of a table, and writes the rows back.

Serves the optimizers for which the engine has no rule. This path is correct for every formula, but
slower: each step copies rows and slots out of the table and back.
"""

from __future__ import annotations

import math
import secrets
import threading
import warnings
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from de_core.base.checks import received
from de_core.base.ops import library
from de_core.base.types import Optimizer, ShapeLike, TensorLike
from de_core.optimizers.clipping import Trained, summed
from de_core.optimizers.rules import Plan, as_scalar
from de_core.tables.policy import FROZEN, USES
from de_core.tables.sharded import ShardedTable
from de_core.tables.spec import arithmetic_dtype


class RowSlot:
    """One slot of the gathered rows: a variable with one entry per row."""

    def __init__(self, name: str, shape: tuple[int, ...], initial: float, dtype: tf.DType) -> None:
        self.name = name
        self.shape = shape
        self.initial = initial
        self.width = math.prod(shape)
        self.variable = _of_any_height(shape, dtype, name)

    def full_name(self, owner: tf.Tensor) -> tf.Tensor:
        """Returns the slot's full name in the table, "owner/name", a scalar string tensor."""
        return tf.strings.join([owner, "/", self.name])


class GatheredRows:
    """Some rows of one table, and their slots.

    Attributes:
        rows: The variable with the rows, [n, dim].
        slots: The slots, in the order in which the optimizer made them.
        average: The rows' moving average. Only optimizers with moving averages use it.
    """

    def __init__(self, table: ShardedTable) -> None:
        self.dtype = arithmetic_dtype(table.spec.value_dtype)
        self.dim = table.spec.dim
        self.rows = _of_any_height((self.dim,), self.dtype, "rows")
        self.slots: list[RowSlot] = []
        self.average = RowSlot("average", (self.dim,), float("nan"), self.dtype)

    def template(self) -> tf.Variable:
        """Returns a variable [dim + 1, dim] for optimizers that make slots of a fixed shape.

        A slot whose first dimension is dim + 1 has one entry per row. No other shape that an
        optimizer derives from `dim` has this first dimension.
        """
        zeros = tf.zeros([self.dim + 1, self.dim], self.dtype)
        return _variable(zeros, zeros.shape, "template")

    def is_of_rows(self, shape: ShapeLike) -> bool:
        """Returns whether a slot made for the template has one entry per row."""
        return len(shape) > 0 and shape[0] == self.dim + 1

    def add(self, name: str, value: TensorLike) -> tf.Variable:
        """Makes a slot whose initial value is that of one or more rows, and returns its variable.

        A number is appended to the name if another slot, or the moving average, has this name.

        Raises:
            ValueError: `value` is not a constant, or its numbers differ.
        """
        value = tf.convert_to_tensor(value)
        values = tf.get_static_value(value)
        if values is None or (values != values.flat[0]).any():
            raise ValueError(
                "A slot of rows must begin as one number everywhere, independent of the values of "
                f"variables. {received(slot=name, initial_value=value)}"
            )
        cleaned = name.replace("/", "_")
        taken = {slot.name for slot in (*self.slots, self.average)}
        unique, number = cleaned, 0
        while unique in taken:
            number += 1
            unique = f"{cleaned}_{number}"
        slot = RowSlot(unique, tuple(value.shape[1:]), float(values.flat[0]), value.dtype)
        self.slots.append(slot)
        return slot.variable


class Copies:
    """Runs the code of an optimizer over gathered rows, by a copy of the optimizer per table.

    The copies use the original's settings, learning rate and count of steps.
    """

    def __init__(self, optimizer: Any) -> None:
        self._optimizer = optimizer
        self._copies: dict[int, Any] = {}

    def rows_of(self, table: ShardedTable) -> GatheredRows:
        """Returns the gathered rows and slots of one table. Creates them at the first call."""
        gathered: GatheredRows = self._copy_for(table).gathered
        return gathered

    def _copy_for(self, table: ShardedTable) -> Any:
        if id(table) not in self._copies:
            with tf.init_scope():
                self._copies[id(table)] = self._new_copy(table)
        return self._copies[id(table)]

    def _new_copy(self, table: ShardedTable) -> Any:
        """Returns a copy whose attribute `gathered` has the rows of a table, and its slots."""
        raise NotImplementedError

    def begin(self) -> None:
        """Prepares a step."""

    def update(self, table: ShardedTable, gradient: tf.Tensor) -> tf.Operation | None:
        """Changes the gathered rows and slots of a table by their gradient, [n, dim]."""
        raise NotImplementedError

    def end(self, done: list[tf.Operation]) -> tf.Operation | None:
        """Runs the rest of a step after the operations `done`, and returns its operation."""

    def shared_variables(self, table: ShardedTable) -> list[Any]:
        """Returns the variables of a table's copy that are not kept per row."""
        raise NotImplementedError


class RowUpdates:
    """The generic path of an optimizer of tables.

    Args:
        optimizer: The optimizer whose code runs.
        copies: Runs the optimizer's code.
        adds: True to add differences to the rows, which keeps what other threads wrote meanwhile.
            False to overwrite the rows.
    """

    def __init__(self, optimizer: Optimizer, copies: Copies, adds: bool) -> None:
        warnings.warn(
            f"{type(optimizer).__name__} has no rule inside the tables: each step gathers their "
            "rows, updates them and writes them back. That is several times slower than an "
            "optimizer with a rule, such as Adam.",
            stacklevel=5,
        )
        self.copies = copies
        self._adds = adds
        self._mutex: tf.Tensor | None = None  # for steps in graphs
        self._lock = threading.Lock()  # for eager steps

    def __getstate__(self) -> dict[str, Any]:
        """Leaves the lock out, which cannot be copied."""
        return {name: value for name, value in vars(self).items() if name != "_lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Makes a lock of its own for the copy."""
        vars(self).update(state, _lock=threading.Lock())

    def apply(
        self,
        plan: Plan,
        trained: Trained,
        owner: tf.Tensor,
        is_decayed: Callable[[ShardedTable], bool],
    ) -> list[tf.Operation | None]:
        """Updates tables and returns the operations, if there are any."""
        for _, table in trained:
            if table.spec.slot_dtype == tf.bfloat16:
                raise NotImplementedError(
                    "A table with bfloat16 slots needs an optimizer with a rule inside the tables, "
                    "because only a rule rounds stochastically. "
                    + received(table=table.name, slot_dtype=table.spec.slot_dtype.name)
                    + " Use such an optimizer, or make the table without `slot_dtype`."
                )
            with self._lock:
                self.copies.rows_of(table)
        self.copies.begin()
        done = [
            self._update(
                plan if is_decayed(table) else plan._replace(decay=None),
                summed(gradient),
                table,
                owner,
            )
            for gradient, table in trained
        ]
        ended = self.copies.end([each for each in done if each is not None])
        return done if ended is None else [*done, ended]

    def _update(
        self, plan: Plan, gradient: tf.IndexedSlices, table: ShardedTable, owner: tf.Tensor
    ) -> Any:
        gathered = self.copies.rows_of(table)
        dtype = gathered.dtype
        slots = [*gathered.slots]
        if plan.average_momentum is not None:
            slots.append(gathered.average)
        ids, values = table.keys_of(gradient), gradient.values
        if table.policy.asks_each_step:
            has_row = table.begin_step(ids)
            ids, values = tf.boolean_mask(ids, has_row), tf.boolean_mask(values, has_row)
        if slots:
            specs = {each.name: (each.width, each.initial) for each in slots}
            made = table.ensure_slots(owner, specs)
            with tf.control_dependencies([] if made is None else [made]):
                ids = tf.identity(ids)
        uses = _uses_after_step(table, ids)
        with tf.control_dependencies([] if uses is None else [uses]):
            ids = tf.identity(ids)
        old = table.find(ids)[0]
        decay = None
        if plan.decay is not None:
            decay = as_scalar(plan.decay, dtype) * as_scalar(plan.lr, dtype)

        def compute(before: tf.Tensor, values: tf.Tensor, *states: tf.Tensor) -> list[tf.Tensor]:
            gathered.rows.assign(before)
            for slot, state in zip(slots, states, strict=True):
                slot.variable.assign(tf.reshape(state, [-1, *slot.shape]))
            if decay is not None:
                gathered.rows.assign_sub(gathered.rows * decay)
            self.copies.update(table, values)
            after = tf.cast(gathered.rows.read_value(), old.dtype)
            if plan.average_momentum is not None:
                momentum = as_scalar(plan.average_momentum, dtype)
                average = gathered.average.variable
                # A new row's average starts at the row before this step.
                kept = momentum * tf.where(tf.math.is_nan(average), before, average)
                average.assign(kept + (1 - momentum) * tf.cast(after, dtype))
            new = [tf.reshape(each.variable.read_value(), [-1, each.width]) for each in slots]
            return [after, *new]

        def computed(before: tf.Tensor, values: tf.Tensor, *states: tf.Tensor) -> list[tf.Tensor]:
            # A mean over no rows would be NaN, and stay in state that all rows share.
            return tf.cond(
                tf.size(values) > 0,
                lambda: compute(before, values, *states),
                lambda: [tf.cast(before, old.dtype), *states],
            )

        states = [table.find_slot(ids, slot.full_name(owner), slot.width) for slot in slots]
        new, *states = self._in_turn(computed, tf.cast(old, dtype), values, *states)
        used, frozen = ids, ids[:0]
        if not table.outlives_its_process:  # no row of a storage is frozen
            with tf.control_dependencies([new]):
                marks = table.find_slot(ids, tf.constant(FROZEN), 1)
            learns = tf.equal(tf.squeeze(marks, -1), 0)
            parts = [ids, old, new, *states]
            ids, old, new, *states = tf.cond(
                tf.reduce_all(learns),
                lambda: parts,
                lambda: [tf.boolean_mask(part, learns) for part in parts],
            )
            if table.policy.rank_column:
                frozen = tf.boolean_mask(used, tf.logical_not(learns))
        if self._adds:
            done = table.write(library.de_table_accum, (ids, old, new))
        else:
            done = table.write(library.de_table_insert_or_assign, (ids, new))
        with tf.control_dependencies([] if done is None else [done]):
            written = [
                table.assign_slot(ids, state, slot.full_name(owner))
                for slot, state in zip(slots, states, strict=True)
            ]
            if table.policy.rank_column:  # frozen rows are in use too
                written.append(table.write(library.de_table_touch, [frozen]))
        if uses is not None:
            with tf.control_dependencies([each for each in (done, *written) if each is not None]):
                written.append(table.assign_slot(used, tf.identity(uses), tf.constant(USES)))
        return table.updated(used, None if done is None else tf.group(done, *written))

    def _in_turn(self, compute: Callable[..., list[tf.Tensor]], *inputs: tf.Tensor) -> Any:
        """Runs `compute` under a lock, so that steps of several threads run one after another."""
        if tf.executing_eagerly():
            with self._lock:
                return compute(*inputs)
        if self._mutex is None:
            with tf.init_scope():
                self._mutex = tf.raw_ops.MutexV2(shared_name=f"de_rows_{secrets.token_hex(8)}")
        lock = tf.raw_ops.MutexLock(mutex=self._mutex)
        with tf.control_dependencies([lock]):
            # A tf.function runs the reads and writes of `compute` in program order. A TensorFlow 1
            # graph alone does not.
            outputs = tf.function(compute, autograph=False)(*inputs)
        with tf.control_dependencies(outputs):
            unlocked = tf.raw_ops.ConsumeMutexLock(mutex_lock=lock)
        with tf.control_dependencies([unlocked]):
            return [tf.identity(each) for each in outputs]


class ChangedCopy:
    """A mixin for a copy of an optimizer.

    In the list of base classes, name it before the optimizer's class.

    The copy reads missing attributes from the original, so it always has the original's current
    settings. Attributes that the copy sets stay in the copy.
    """

    original: Any

    def __getattr__(self, name: str) -> Any:
        """Returns an attribute of the original optimizer."""
        try:
            return vars(self.__dict__["original"])[name]
        except KeyError:
            raise AttributeError(f"{type(self).__name__!r} has no attribute {name!r}") from None

    def __setattr__(self, name: str, value: Any) -> None:
        """Sets an attribute without the tracking that Keras's optimizer classes do."""
        object.__setattr__(self, name, value)


def changed_copy(original: Optimizer, changes: type[ChangedCopy], **attributes: Any) -> Optimizer:
    """Returns a copy of an optimizer with some methods replaced."""
    kind = type(original)
    copy: Any = object.__new__(type(f"RowsOf{kind.__name__}", (changes, kind), {}))
    vars(copy).update(original=original, **attributes)
    return copy


def _uses_after_step(table: ShardedTable, ids: tf.Tensor) -> tf.Tensor | None:
    """Returns the rows' uses after a step, [n, 1]; None if its writes count each row once."""
    policy = table.policy
    if not (policy.counts_uses and (policy.asks_each_step or policy.counts_lookups)):
        return None
    # Reading the rows may count a use, and writing them counts one. `begin_step` has counted it.
    uses = table.find_slot(ids, tf.constant(USES), 1, tf.int64)
    return uses if policy.asks_each_step else uses + 1


def _of_any_height(shape: tuple[int, ...], dtype: tf.DType, name: str) -> tf.Variable:
    return _variable(tf.zeros([0, *shape], dtype), [None, *shape], name)


def _variable(value: tf.Tensor, shape: ShapeLike, name: str) -> tf.Variable:
    # Add the variable to no graph collection: Savers need not save it, because each step assigns it
    # before reading it.
    return tf.compat.v1.Variable(
        value,
        trainable=False,
        collections=[],
        validate_shape=False,
        use_resource=True,
        shape=tf.TensorShape(shape),
        name=name,
    )
