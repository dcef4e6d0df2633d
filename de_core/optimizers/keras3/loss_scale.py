"""Dynamic loss scaling around an optimizer of tables."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import keras
import tensorflow as tf

from de_core.base.checks import received
from de_core.base.no_autograph import no_autograph
from de_core.base.types import Gradient, TrainedVariable
from de_core.optimizers import clipping
from de_core.optimizers.keras3.optimizer import KerasOptimizer
from de_core.optimizers.targets import anchor_of, once_per_table
from de_core.tables.sharded import ShardedTable


@keras.saving.register_keras_serializable(package="de_core", name="LossScaleOptimizer")
class LossScaleOptimizer(keras.optimizers.LossScaleOptimizer):
    """A `keras.optimizers.LossScaleOptimizer` that keeps the gradients of tables sparse.

    If a gradient is not finite, the step changes no table and no variable, and halves the scale.

    Args:
        inner_optimizer: An optimizer that `de.DynamicEmbeddingOptimizer` returned, or any Keras
            optimizer if every table has an optimizer of its own.
        initial_scale: The scale to begin with.
        dynamic_growth_steps: The scale doubles after this many finite steps.
        name: Name of the optimizer.

    Raises:
        TypeError: `inner_optimizer` is not a Keras optimizer, or it scales the loss itself.

    Example:
    >>> import keras
    >>> import de_core as de
    >>> adam = de.DynamicEmbeddingOptimizer(keras.optimizers.Adam())
    >>> de.LossScaleOptimizer(adam, initial_scale=8.0).initial_scale
    8.0
    """

    #: True: the gradients of tables that this class hands on are sparse and not scaled.
    keeps_tables_sparse = True
    #: True if `de.DynamicEmbeddingOptimizer` added the scale because of the global dtype policy.
    is_of_policy = False

    def __init__(
        self,
        inner_optimizer: keras.optimizers.Optimizer,
        initial_scale: float = 2.0**15,
        dynamic_growth_steps: int = 2000,
        name: str | None = None,
    ) -> None:
        if getattr(inner_optimizer, "is_of_policy", False):
            inner_optimizer = inner_optimizer.inner_optimizer
        is_scale = isinstance(inner_optimizer, keras.optimizers.LossScaleOptimizer)
        if is_scale or not isinstance(inner_optimizer, keras.optimizers.Optimizer):
            raise TypeError(
                "`inner_optimizer` must be an optimizer of Keras 3 that does not scale the loss. "
                + received(inner_optimizer=inner_optimizer)
                + " Pass an optimizer such as "
                "de.DynamicEmbeddingOptimizer(keras.optimizers.Adam()), or keras.optimizers.Adam() "
                "if every table has an optimizer of its own."
            )
        if isinstance(inner_optimizer, KerasOptimizer):
            inner_optimizer.is_loss_scaled = True
        super().__init__(inner_optimizer, initial_scale, dynamic_growth_steps, name=name)

    def build(self, var_list: Iterable[TrainedVariable]) -> None:
        """Makes the state of this optimizer and of the wrapped one.

        Args:
            var_list: All trainable variables, anchors and `de.Variable`s included.
        """
        anchors = map(anchor_of, var_list)
        super().build([each for each in anchors if each is not None])

    @no_autograph
    def apply(
        self,
        grads: Iterable[Gradient | None],
        trainable_variables: Iterable[TrainedVariable] | None = None,
    ) -> None:
        """Does one step, unless a gradient is not finite.

        Args:
            grads: Gradients of the scaled loss, one per variable; None for a variable without one.
            trainable_variables: The variables; None for those that the optimizer was built with.
        """
        if trainable_variables is None:
            trainable_variables = self._trainable_variables
        given = once_per_table(grads, trainable_variables)
        gradients = [gradient for gradient, _, _ in given]
        variables = [variable for _, variable, _ in given]
        if not self.built:
            self.build(variables)

        def update() -> None:
            scale = self.dynamic_scale.value
            unscaled = [
                None if each is None else clipping.scaled(each, 1.0 / scale) for each in gradients
            ]
            self.inner_optimizer.apply(unscaled, variables)
            grown = tf.equal(self.step_counter.value, self.dynamic_growth_steps - 1)
            self.dynamic_scale.assign(tf.where(grown, scale * 2.0, scale))
            count = self.step_counter.value
            self.step_counter.assign(tf.where(grown, tf.zeros_like(count), count + 1))

        def skip() -> None:
            self.step_counter.assign(0)
            self.dynamic_scale.assign(self.dynamic_scale.value * 0.5)

        tf.cond(self.check_finite(gradients), update, skip)

    def check_finite(self, grads: Iterable[Gradient | None]) -> tf.Tensor:
        """Returns a bool scalar: true if no gradient holds a NaN or an infinity.

        Args:
            grads: Gradients; None where there is none.
        """
        return clipping.is_finite([each for each in grads if each is not None])

    @property
    def slots_owner(self) -> tf.Tensor:
        """The name under which the tables keep the wrapped optimizer's slots."""
        return self.inner_optimizer.slots_owner

    @property
    def rejected_steps(self) -> Any:
        """The number of steps that `reject_nonfinite` of the wrapped optimizer refused."""
        return self.inner_optimizer.rejected_steps

    def exclude_from_weight_decay(self, *args: Any, **options: Any) -> None:
        """Calls the wrapped optimizer's method, which leaves out variables and tables.

        Args:
            *args: See `exclude_from_weight_decay` of the wrapped optimizer.
            **options: The same.
        """
        self.inner_optimizer.exclude_from_weight_decay(*args, **options)

    @property
    def tables(self) -> list[ShardedTable]:
        """The tables that the wrapped optimizer was built for."""
        return list(self.inner_optimizer.tables)
