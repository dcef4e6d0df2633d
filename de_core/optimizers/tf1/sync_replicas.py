"""TensorFlow 1's synchronous training, for models with dynamic tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import tensorflow as tf

from de_core.base.checks import received
from de_core.base.types import GradientPair, TrainedVariable
from de_core.optimizers import clipping
from de_core.optimizers.targets import Targets, once_per_table
from de_core.optimizers.tf1.optimizer import Tf1Optimizer


class SyncReplicasOptimizer(tf.compat.v1.train.SyncReplicasOptimizer):
    """A `tf.compat.v1.train.SyncReplicasOptimizer` that averages rows' gradients over all replicas.

    TensorFlow's class divides the gradient of a row by the number of replicas that have the row, so
    a rare id learns as if from a small batch. This class divides by the number of all replicas, as
    for a dense variable. N workers then give the numbers of one worker with an N-fold batch.

    Use the hooks of TensorFlow's class. By default, replicas run ahead in TensorFlow's class, but
    not in this one.

    Args:
        opt: A TensorFlow 1 optimizer that `de.DynamicEmbeddingOptimizer` wrapped.
        replicas_to_aggregate: The number of replicas whose gradients make one step.
        total_num_replicas: The same number, or None.
        variable_averages: See TensorFlow's class.
        variables_to_average: See TensorFlow's class.
        use_locking: See TensorFlow's class.
        name: Name of the optimizer.

    Raises:
        TypeError: `opt` is another optimizer.
        NotImplementedError: `total_num_replicas` is not `replicas_to_aggregate`.

    Example:
    >>> import de_core as de
    >>> plain = tf.compat.v1.train.AdagradOptimizer(0.1)
    >>> wrapped = de.DynamicEmbeddingOptimizer(plain)
    >>> optimizer = de.optimizers.SyncReplicasOptimizer(wrapped, replicas_to_aggregate=2)
    """

    def __init__(
        self,
        opt: Tf1Optimizer,
        replicas_to_aggregate: int,
        total_num_replicas: int | None = None,
        variable_averages: tf.train.ExponentialMovingAverage | None = None,
        variables_to_average: Sequence[tf.Variable] | None = None,
        use_locking: bool = False,
        name: str = "sync_replicas",
    ) -> None:
        if not isinstance(opt, Tf1Optimizer):
            raise TypeError(
                "`opt` must be what de.DynamicEmbeddingOptimizer made of an optimizer of "
                f"tf.compat.v1.train. {received(opt=opt)}"
            )
        if total_num_replicas not in (None, replicas_to_aggregate):
            raise NotImplementedError(
                "All replicas must take part in each step: leave `total_num_replicas` None. "
                + received(
                    replicas_to_aggregate=replicas_to_aggregate,
                    total_num_replicas=total_num_replicas,
                )
            )
        super().__init__(
            _Joining(opt, self, replicas_to_aggregate),
            replicas_to_aggregate,
            total_num_replicas,
            variable_averages,
            variables_to_average,
            use_locking,
            name,
        )

    def get_init_tokens_op(self, num_tokens: int = -1) -> tf.Operation:
        """Returns the op that lets replicas run ahead of the first step.

        Args:
            num_tokens: The number of runs, over all replicas, that may start ahead; -1 for none.
                If it is positive, a fast replica may take part in a step twice and a slow one not
                at all.
        """
        return super().get_init_tokens_op(max(num_tokens, 0))

    def apply_gradients(
        self,
        grads_and_vars: Iterable[GradientPair],
        global_step: tf.Variable | None = None,
        name: str | None = None,
    ) -> tf.Operation | None:
        """Adds up the gradients of all replicas, and waits for the step.

        Args:
            grads_and_vars: Pairs of a gradient, or None, and its variable.
            global_step: The variable that counts steps.
            name: Name of the operation.

        Returns:
            The operation that does the step.

        Raises:
            TypeError: The ids of a table are strings.
            ValueError: No variable has a gradient, or `global_step` is None.
        """
        pairs = list(grads_and_vars)
        given = once_per_table((each for each, _ in pairs), (each for _, each in pairs))
        pairs = [(gradient, variable) for gradient, variable, _ in given]
        targets = Targets.of_pairs(pairs)
        own = {id(gradient) for gradient, _ in targets.trained}
        for gradient, table in targets.trained:
            if gradient.indices.dtype == tf.string:
                raise TypeError(
                    "The ids of tables that replicas train together must be integers. "
                    f"Received: table={table.name!r} with string ids. Hash the ids."
                )
        # Hide gradients of tables from TensorFlow's class, which would average them in its own way.
        # It passes variables without a gradient on to `_Joining`, which adds them again.
        others = [(None if id(each) in own else each, variable) for each, variable in pairs]
        joining: _Joining = self._opt
        joining.of_tables = [(each, variable) for each, variable in pairs if id(each) in own]
        train = super().apply_gradients(others, global_step, name)
        return tf.group(train, *joining.added)


class _Joining:
    """Wraps the optimizer and joins the replicas' gradients of tables before each update.

    The `_local_step` of `sync` exists when `sync` calls `apply_gradients`.
    """

    def __init__(self, optimizer: Tf1Optimizer, sync: SyncReplicasOptimizer, replicas: int) -> None:
        self._optimizer = optimizer
        self._sync = sync
        self._replicas = replicas
        self.of_tables: list[tuple[tf.IndexedSlices, TrainedVariable]] = []
        self.added: list[tf.Operation] = []

    def apply_gradients(
        self,
        grads_and_vars: Iterable[GradientPair],
        global_step: tf.Variable | None,
    ) -> tf.Operation:
        """Updates tables and variables by the mean gradients of all replicas."""
        joined = {id(variable): self._mean(each, variable) for each, variable in self.of_tables}
        pairs = [(joined.get(id(variable), each), variable) for each, variable in grads_and_vars]
        return self._optimizer.apply_gradients(pairs, global_step)

    def _mean(self, gradient: tf.IndexedSlices, variable: TrainedVariable) -> tf.IndexedSlices:
        with tf.device(variable.device):
            sums = tf.compat.v1.SparseConditionalAccumulator(
                gradient.values.dtype,
                shape=(),
                shared_name=f"{variable.name}/grad_sum",
                reduction_type="SUM",
            )
            # The accumulator can only merge gradients whose ids are sorted and distinct.
            gradient = clipping.summed(gradient)
            ids = tf.cast(gradient.indices, tf.int64)
            order = tf.argsort(ids)
            ordered = tf.IndexedSlices(tf.gather(gradient.values, order), tf.gather(ids, order))
            self.added.append(sums.apply_indexed_slices_grad(ordered, self._sync._local_step))
            joined = sums.take_indexed_slices_grad(self._replicas)
            self._sync._accumulator_list.append((sums, variable.device))
            return clipping.scaled(joined, 1.0 / self._replicas)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._optimizer, name)
