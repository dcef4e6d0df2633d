"""Writes rows and numbers eagerly, or in a session of TensorFlow 1."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import tensorflow as tf

from de_core.base.checks import received
from de_core.base.progress import Progress
from de_core.optimizers.tf1.optimizer import Tf1Optimizer
from de_core.tables.sharded import ShardedTable
from de_core.tables.spec import arithmetic_dtype


class Writer:
    """Writes into tables and variables.

    Args:
        session: The session of the graph; None in eager mode, or for the default session.

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

    def write(
        self,
        operation: Callable[[tf.Tensor, tf.Tensor], tf.Operation | None],
        dtypes: tuple[tf.DType, tf.DType],
        batches: Iterable[tuple[Any, Any]],
        progress: Progress,
    ) -> None:
        """Runs an operation on batches.

        Args:
            operation: Takes keys [n] and values [n, dim].
            dtypes: The dtypes of the keys and the values.
            batches: Pairs of arrays.
            progress: Counts the rows.
        """
        if self._session is None:
            for keys, values in batches:
                there = tf.convert_to_tensor(keys, dtypes[0])
                operation(there, tf.cast(tf.convert_to_tensor(values), dtypes[1]))
                progress.add(len(keys))
            return
        inputs = [tf.compat.v1.placeholder(dtype) for dtype in dtypes]
        done = operation(*inputs)
        for batch in batches:
            self._session.run(done, dict(zip(inputs, batch, strict=True)))
            progress.add(len(batch[0]))

    def make_slots(self, optimizer: Any, table: ShardedTable) -> None:
        """Makes an optimizer's slots in a table."""
        done = _make_slots(optimizer, table)
        if self._session is not None:
            steps = getattr(optimizer, "steps", None)
            if steps is not None:
                self._session.run(steps.initializer)
            self._session.run(done)

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


def _make_slots(optimizer: Any, table: ShardedTable) -> list[Any]:
    """Makes the slots that an optimizer keeps in a table, with their initial values.

    Does a step on no row. The caller must set the optimizer's numbers of steps afterwards.

    Args:
        optimizer: The result of `DynamicEmbeddingOptimizer`.
        table: The table.

    Returns:
        The operations; in eager mode an empty list.
    """
    spec = table.spec
    nothing = tf.IndexedSlices(
        tf.zeros([0, spec.dim], arithmetic_dtype(spec.value_dtype)), tf.zeros([0], spec.key_dtype)
    )
    if isinstance(optimizer, Tf1Optimizer):
        return optimizer._apply_to_tables([(nothing, table)])
    product = optimizer.u_product
    before = tf.identity(product) if tf.executing_eagerly() else None
    optimizer._add_table(table)
    done = optimizer._apply_to_tables([(nothing, table)])
    if before is not None:
        product.assign(before)
    return done
