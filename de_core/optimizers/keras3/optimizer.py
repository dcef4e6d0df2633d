"""The Keras 3 optimizer for models with dynamic tables."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Sequence
from typing import Any

import keras
import tensorflow as tf

from de_core.base import call_stack
from de_core.base.no_autograph import no_autograph
from de_core.base.private_names import SWAPPER_OF_AVERAGES
from de_core.base.types import GradientPair
from de_core.optimizers import clipping, rules
from de_core.optimizers.accumulation import Accumulation
from de_core.optimizers.clipping import Trained
from de_core.optimizers.keras3 import rowwise
from de_core.optimizers.keras3.copies import KerasCopies
from de_core.optimizers.steps import Wrapping, is_eager_outside, run_owned
from de_core.optimizers.targets import Targets, anchor_of
from de_core.tables.sharded import ShardedTable


@keras.saving.register_keras_serializable(package="de_core", name="DynamicEmbeddingOptimizer")
class KerasOptimizer(Wrapping, keras.optimizers.Optimizer):
    """A Keras optimizer that also trains dynamic tables; `DynamicEmbeddingOptimizer` makes it.

    The wrapped optimizer updates ordinary variables. A table applies its own gradient. Learning
    rate and schedules, clipping, weight decay, moving averages, gradient accumulation and the loss
    scale of the wrapped optimizer apply to variables and tables.
    """

    _saving = keras.saving

    def __init__(
        self,
        optimizer: keras.optimizers.Optimizer,
        bp_v2: bool = False,
        reject_nonfinite: bool = False,
        name: str | None = None,
    ) -> None:
        super().__init__(learning_rate=0.0, name=name)
        self.is_loss_scaled = False
        known = (keras.optimizers, rowwise)
        rule = rules.rule_of(optimizer, rules.KERAS, known, ["update_step"])
        self._start(optimizer, rule, KerasCopies, bp_v2, reject_nonfinite)
        self._made_eagerly = is_eager_outside()
        self._accumulation: Accumulation | None = None
        number = secrets.randbits(60)
        self._slots_id = keras.Variable(
            lambda shape, dtype: tf.fill(shape, tf.constant(number, tf.int64)),  # noqa: ARG005
            shape=(),
            dtype="int64",
            trainable=False,
            name="slots_id",
        )
        self._track_variable(self._slots_id)
        self._rejected = self.add_variable((), "zeros", "int64", name="rejected_steps")
        self.u_product = self.add_variable((), "ones", "float32", name="u_product")

    def build(self, variables: Sequence[Any]) -> None:
        """Makes the wrapped optimizer's slots for ordinary variables.

        Raises:
            RuntimeError: The optimizer was made eagerly, and is used in a TensorFlow 1 graph.
        """
        self._require_own_mode()
        if self.built:
            return
        dense = self._build_others(variables)
        inner = self.inner_optimizer
        if inner.gradient_accumulation_steps:
            self._accumulation = Accumulation(self._tables, dense if inner.global_clipnorm else [])
        super().build([each for each in map(anchor_of, variables) if each is not None])

    def _add_table(self, table: ShardedTable) -> None:
        if self._accumulation is not None and table not in self._tables:
            raise ValueError(
                "An optimizer that accumulates gradients must be built with all tables. Received: "
                f"{table.name!r} in a later step. Pass all tables to `build` or to the first step."
            )
        super()._add_table(table)

    def _keep(self, variable: Any) -> None:
        self._track_variable(variable)

    @no_autograph
    def apply(self, grads: Iterable[Any], trainable_variables: Iterable[Any] | None = None) -> None:
        """Does one step.

        Args:
            grads: One gradient per variable; None for a variable without one.
            trainable_variables: The variables; None for those that the optimizer was built with.

        Raises:
            TypeError: A table's values are not floating-point numbers.
            ValueError: No variable has a gradient.
            tf.errors.InvalidArgumentError: With `reject_nonfinite`, a gradient has a NaN or an
                infinity. The step then changes only `rejected_steps`.
        """
        given = self._trainable_variables if trainable_variables is None else trainable_variables
        variables = list(given)
        targets = Targets.of(grads, variables)
        targets.require_replica()
        if not targets.trained:
            targets.require_one()
        if not self.built:
            self.build(variables)
        self._step(targets)

    def _step(self, targets: Targets) -> None:
        # Check.
        inner = vars(self)["inner_optimizer"]  # without the check of the public property
        self._admit(targets.trained, {"a dynamic loss scale": self.is_loss_scaled})
        checks = targets.require_finite(self._rejected.value) if self.reject_nonfinite else []
        with tf.control_dependencies(checks):
            # Scale, and train the tables that have optimizers of their own.
            if inner.loss_scale_factor is not None:
                targets = targets.scaled(1.0 / inner.loss_scale_factor)
            trained, dense = targets.trained, targets.dense
            if targets.owned:
                run_owned(targets.owned)

            # Clip and update the tables: now, or once enough gradients are accumulated.
            def update(trained: Trained, others: Sequence[Any]) -> tuple[list[Any], Any]:
                trained, scale = clipping.clip_tables(inner, trained, others)
                return self._apply_to_tables(trained), scale

            if self._accumulation is not None:
                steps = inner.gradient_accumulation_steps
                due = tf.equal((inner.variables[0] + 1) % steps, 0)
                done, dense = self._accumulation.step(targets, due, steps, update)
            else:
                done, scale = update(trained, [gradient for gradient, _ in dense])
                if scale is not None:
                    dense = [(clipping.scaled(each, scale), v) for each, v in targets.others]
            if inner.use_ema:
                self._overwrite(done)
            # Update ordinary variables, and count. If a table refuses its gradient, the step stops
            # before it changes them.
            with tf.control_dependencies(done):
                self._apply_to_others(inner, dense)

    @no_autograph
    def apply_gradients(self, grads_and_vars: Iterable[GradientPair]) -> Any:
        """Does one step and returns the number of steps."""
        pairs = list(grads_and_vars)
        gradients, variables = zip(*pairs, strict=True) if pairs else ((), ())
        self.apply(gradients, variables)
        return vars(self)["inner_optimizer"].iterations

    def _rate_and_average(self, inner: Any) -> tuple[Any, Any]:
        if not inner.use_ema:
            return inner.learning_rate, None
        is_later = tf.cast(tf.not_equal(inner.iterations, 0), tf.float64)
        return inner.learning_rate, is_later * inner.ema_momentum

    def _apply_to_others(self, inner: Any, dense: list[GradientPair]) -> None:
        """Lets the wrapped optimizer update ordinary variables and count the step."""
        pairs = [(gradient, variable) for gradient, variable in dense if gradient is not None]
        if not pairs:
            if self._accumulation is None:
                rules.count_alone(inner)
            # Count the step as Keras does, by one op. `Variable.assign_add` of Keras has four.
            inner.variables[0].value.assign_add(1)
            return
        gradients, variables = zip(*pairs, strict=True)
        factor = inner.loss_scale_factor
        if factor is not None:  # `inner.apply` divides the gradients by it
            gradients = tuple(clipping.scaled(each, factor) for each in gradients)
        inner.apply(list(gradients), list(variables))

    @property
    def inner_optimizer(self) -> Any:
        """The wrapped optimizer.

        Raises:
            NotImplementedError: `keras.callbacks.SwapEMAWeights` is the caller. It would swap the
                averages of ordinary variables but not of rows.
        """
        own = vars(self)
        if "inner_optimizer" not in own:
            raise AttributeError("inner_optimizer")  # Keras's constructor looks for it.
        if own.get("_tables") and call_stack.nearest(SWAPPER_OF_AVERAGES) is not None:
            raise NotImplementedError(
                "keras.callbacks.SwapEMAWeights must not be used with dynamic tables, because it "
                "cannot swap the averages of rows. Received: tables="
                f"{[table.name for table in self._tables]}. Set `ema_overwrite_frequency`, or "
                "evaluate after `fit`, which leaves the averages in the model."
            )
        return own["inner_optimizer"]

    @inner_optimizer.setter
    def inner_optimizer(self, optimizer: Any) -> None:
        self.__dict__["inner_optimizer"] = optimizer

    @property
    def variables(self) -> list[Any]:
        """The state that is saved with a model: this optimizer's and the wrapped optimizer's."""
        own = {id(each): each for each in self._variables}  # Keras lists some twice
        return [*own.values(), *self.inner_optimizer.variables]

    @property
    def loss_scale_factor(self) -> float | None:
        """The wrapped optimizer's loss scale factor."""
        inner = getattr(self, "inner_optimizer", None)
        return None if inner is None else inner.loss_scale_factor

    @loss_scale_factor.setter
    def loss_scale_factor(self, factor: float | None) -> None:
        inner = getattr(self, "inner_optimizer", None)
        if inner is not None:  # None inside Keras's constructor
            inner.loss_scale_factor = factor

    def __setattr__(self, name: str, value: Any) -> None:
        """Sets an attribute, unless Keras's LossScaleOptimizer is wrapping this optimizer.

        Keras's class does not unscale gradients of variables with `overwrite_with_gradient`, so
        rows would move 2**15 times too far. Its constructor, and MultiOptimizer's too, sets
        the wrapped optimizer's `loss_scale_factor` to None. This method detects it there.

        Raises:
            TypeError: The constructor of a `keras.optimizers.LossScaleOptimizer` is the caller.
        """
        is_made = "inner_optimizer" in self.__dict__
        if name == "loss_scale_factor" and value is None and is_made and not self.is_loss_scaled:
            check_not_scaled_by_keras()
        super().__setattr__(name, value)

    def scale_loss(self, loss: Any) -> Any:
        """Returns the loss times the wrapped optimizer's loss scale factor."""
        return self.inner_optimizer.scale_loss(loss)

    def save_own_variables(self, store: Any) -> None:
        """Writes the state into a Keras file, including accumulated gradients."""
        super().save_own_variables(store)
        if self._accumulation is not None:
            self._accumulation.save(store)

    def load_own_variables(self, store: Any) -> None:
        """Reads the state that `save_own_variables` wrote."""
        names = list(store.keys())
        super().load_own_variables({name: store[name] for name in names if name.isdigit()})
        if self._accumulation is not None and "waiting_0" in names:
            self._accumulation.load(store)

    @classmethod
    def from_config(
        cls, config: dict[str, Any], custom_objects: dict[str, Any] | None = None
    ) -> KerasOptimizer:
        """Makes an optimizer from the result of `get_config`."""
        inner = keras.saving.deserialize_keras_object(
            config["optimizer"], custom_objects=custom_objects
        )
        return cls(**{**config, "optimizer": inner})


def check_not_scaled_by_keras() -> None:
    """Raises TypeError if a method of a `keras.optimizers.LossScaleOptimizer` is running.

    Keras's class does not unscale gradients of variables with `overwrite_with_gradient`, so rows
    would move 2**15 times too far. A `de.LossScaleOptimizer` is allowed.
    """

    def is_not_ours(scale: Any) -> bool:
        return not getattr(scale, "keeps_tables_sparse", False)

    if call_stack.nearest_owner(keras.optimizers.LossScaleOptimizer, is_not_ours) is not None:
        raise TypeError(
            "A dynamic loss scale around an optimizer of tables must be a de.LossScaleOptimizer. "
            "Received: a keras.optimizers.LossScaleOptimizer. "
            "Use de.LossScaleOptimizer(optimizer)."
        )
