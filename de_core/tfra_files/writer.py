"""Writes tables and numbers eagerly, or in a session of TensorFlow 1."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import tensorflow as tf

from de_core.base.checks import received
from de_core.base.ops import library
from de_core.base.progress import Progress
from de_core.optimizers.accumulation import no_slices
from de_core.optimizers.tf1.optimizer import Tf1Optimizer
from de_core.tables.sharded import ShardedTable
from de_core.tables.spec import arithmetic_dtype
from de_core.tfra_files import roles
from de_core.tfra_files.saved_table import SavedTable, Spec
from de_core.variable.slots import slots_of

#: Factors from the counts of uses and the seconds in files to the numbers in a metadata column.
_FACTORS = {"uses": 1, "time": 10**6}


class Job(NamedTuple):
    """A table to import, and where to."""

    name: str
    saved: SavedTable
    spec: Spec
    table: ShardedTable | None

    def parts(self) -> Iterator[tuple[str, SavedTable, Spec]]:
        """Yields the table and all that belongs to it: the name of the slot or column, and spec."""
        yield "", self.saved, self.spec
        for name, each in self.saved.slots.items():
            yield name, each, each.spec() or self.spec
        for name, each in self.saved.columns.items():
            yield name, each, Spec(self.spec.key_dtype, tf.int32, 1)


class Writer:
    """Writes into tables and variables: eagerly, or in the session of a graph.

    Raises:
        RuntimeError: A graph is being built, and there is no session.
    """

    def __init__(self, session: tf.compat.v1.Session | None) -> None:
        self._session = None
        if tf.executing_eagerly():
            return
        self._session = session or tf.compat.v1.get_default_session()
        if self._session is None:
            raise RuntimeError(
                "In a graph, a session must write the rows. "
                f"{received(session=session)} Pass `session`, or call it inside `with session:`."
            )

    def make_slots(self, job: Job, optimizer: Any) -> dict[str, tf.Tensor]:
        """Makes an optimizer's slots in a table, with their initial values.

        The caller must set the optimizer's numbers of steps afterwards. Returns the slots' full
        names in the table, by the saved names.
        """
        table: Any = job.table
        on_no_row = [(no_slices(table), table)]
        if isinstance(optimizer, Tf1Optimizer):
            done = optimizer._apply_to_tables(on_no_row)
        else:
            product = optimizer.u_product
            before = tf.identity(product) if tf.executing_eagerly() else None
            optimizer._add_table(table)
            done = optimizer._apply_to_tables(on_no_row)
            if before is not None:
                product.assign(before)
        if self._session is not None:
            steps = getattr(optimizer, "steps", None)
            self._session.run([] if steps is None else steps.initializer)
            self._session.run(done)
        own = [each.slot_name for each in slots_of(table, optimizer)]
        names = roles.own_names(job.name, job.saved.slots, own)
        return {
            saved: tf.strings.join([optimizer.slots_owner, "/", name])
            for saved, name in names.items()
        }

    def write(self, job: Job, slots: dict[str, tf.Tensor], progress: Progress) -> None:
        """Writes rows, slots, and the counts and times of policies.

        `slots` has the full names of the slots to write, by the saved names.
        """
        table: Any = job.table
        of_slots = arithmetic_dtype(job.spec.value_dtype)
        for name, saved, spec in job.parts():
            if name and name not in _FACTORS and name not in slots:
                continue
            dtype = tf.int64 if name in _FACTORS else of_slots if name else spec.value_dtype
            batches = saved.batches(spec)
            if self._session is None:
                for keys, values in batches:
                    there = tf.convert_to_tensor(keys, spec.key_dtype)
                    numbers = tf.cast(tf.convert_to_tensor(values), dtype)
                    _write(table, name, slots.get(name), there, numbers)
                    progress.add(len(keys))
                continue
            inputs = [tf.compat.v1.placeholder(each) for each in (spec.key_dtype, dtype)]
            done = _write(table, name, slots.get(name), *inputs)
            for batch in batches:
                self._session.run(done, dict(zip(inputs, batch, strict=True)))
                progress.add(len(batch[0]))

    def assign(self, variable: Any, value: Any) -> None:
        """Assigns a value to a variable."""
        done = variable.assign(value)
        if self._session is not None:
            self._session.run(done)

    def restore_named(self, prefix: str, names: Iterable[str]) -> None:
        """Restores the graph's ordinary variables that a Saver's checkpoint has. Not if eager."""
        if self._session is None:
            return
        there = set(names)
        variables = [each for each in tf.compat.v1.global_variables() if each.op.name in there]
        if variables:
            tf.compat.v1.train.Saver(variables).restore(self._session, prefix)


def _write(
    table: ShardedTable, name: str, slot: tf.Tensor | None, keys: tf.Tensor, values: tf.Tensor
) -> Any:
    """Writes rows, one of their metadata columns, or one of their slots."""
    if name in _FACTORS:
        numbers = _FACTORS[name] * tf.reshape(values, [-1, 1])
        return table.assign_slot(keys, numbers, tf.constant(f"de/{name}"))
    if slot is not None:
        return table.assign_slot(keys, values, slot)
    return table.write(library.de_table_insert_or_assign, (keys, values))
