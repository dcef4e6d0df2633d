"""The tf_keras (Keras 2) optimizers for models with dynamic tables. Needs tf_keras."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

import tensorflow as tf
import tf_keras

from de_core.base.checks import received
from de_core.base.no_autograph import no_autograph
from de_core.base.types import GradientPair
from de_core.optimizers import clipping, rules
from de_core.optimizers.keras2.copies import Keras2Copies
from de_core.optimizers.rules import Rule
from de_core.optimizers.steps import Wrapping, is_eager_outside
from de_core.optimizers.targets import Targets, filled_by_loss


class TablesAndOthers(Wrapping):
    """The base of new and legacy tf_keras optimizers that train tables.

    It applies gradients of tables, and passes the other gradients to the wrapped optimizer.

    Raises:
        NotImplementedError: `optimizer` has no rule inside the tables, and no formula for dense
            gradients.
    """

    _saving = tf_keras.saving

    def __init__(
        self,
        optimizer: Any,
        bp_v2: bool = False,
        reject_nonfinite: bool = False,
        name: str | None = None,
    ) -> None:
        rule = self.rule_of(optimizer)
        # The base class's constructor reads this attribute, but cannot track it yet.
        object.__setattr__(self, "inner_optimizer", optimizer)
        given = optimizer.name if hasattr(optimizer, "name") else optimizer._name
        super().__init__(name=name or given)  # type: ignore[call-arg]
        # tf_keras tracks an attribute for checkpoints only if its value changes: delete it first.
        object.__delattr__(self, "inner_optimizer")
        self._start(optimizer, rule, Keras2Copies, bp_v2, reject_nonfinite)
        self._of_no_row: list[tf.Variable] = []
        self._make_state()

    def _make_state(self) -> None:
        self._made_eagerly = is_eager_outside()
        with tf.init_scope():
            self._slots_id = tf.Variable(secrets.randbits(60), dtype=tf.int64, trainable=False)
            self.u_product = tf.Variable(1.0, trainable=False)
            self._rejected = tf.Variable(0, dtype=tf.int64, trainable=False)

    def minimize(self, loss: Any, var_list: Any, *args: Any, **options: Any) -> Any:
        """Computes the gradients of a loss and does one step.

        Args:
            loss: The loss, in the form that the wrapped optimizer's `minimize` takes.
            var_list: Ordinary variables, anchors, `de.Variable`s and wrappers of lookups, or a
                function that returns them.
            *args: Further arguments of the wrapped optimizer's `minimize`.
            **options: Further keyword arguments of the wrapped optimizer's `minimize`.
        """
        minimize = super().minimize  # type: ignore[misc]
        loss, var_list = filled_by_loss(loss, var_list)
        return minimize(loss, var_list, *args, **options)

    @no_autograph
    def apply_gradients(
        self,
        grads_and_vars: Iterable[GradientPair],
        name: str | None = None,
        **settings: Any,
    ) -> Any:
        """Does one step.

        Args:
            grads_and_vars: Pairs of a gradient, or None, and its variable.
            name: Name of the operation.
            **settings: Further arguments of the wrapped optimizer's `apply_gradients`.

        Returns:
            The result of the wrapped optimizer's `apply_gradients`. If only tables have gradients,
            the number of steps.

        Raises:
            TypeError: A table's values are not floating-point numbers.
            ValueError: No variable has a gradient.
            RuntimeError: The optimizer was made eagerly, and is used in a TensorFlow 1 graph.
        """
        self._require_own_mode()
        targets = Targets.of_pairs(grads_and_vars)
        targets.require_replica()
        # A LossScaleOptimizer of tf_keras adds the replicas' gradients up before it calls this.
        is_sum = settings.get("skip_gradients_aggregation")
        is_sum = is_sum or not settings.get("experimental_aggregate_gradients", True)
        self._admit(targets.trained, {"gradients that are added up already": is_sum})
        dense = targets.others
        checks = targets.require_finite(self._rejected) if self.reject_nonfinite else []
        with tf.control_dependencies(checks):
            others = [gradient for gradient, _ in dense]
            trained, scale = clipping.clip_tables(self.inner_optimizer, targets.trained, others)
            done = self._apply_to_tables(trained)
            if trained:
                self._overwrite(done)
        # If a table refuses its gradient, the step stops before it changes other variables.
        with tf.control_dependencies(done):
            if not dense:
                with tf.control_dependencies(rules.count_alone(self.inner_optimizer)):
                    return self.inner_optimizer.iterations.assign_add(1)
            if scale is not None:
                clip = partial(clipping.by_value, self.inner_optimizer)
                dense = [(clipping.scaled(clip(each), scale), variable) for each, variable in dense]
            return self.inner_optimizer.apply_gradients(dense, name=name, **settings)

    @staticmethod
    def rule_of(optimizer: Any) -> Rule | None:
        """Returns the engine's rule for an optimizer, or None if the engine has none."""
        raise NotImplementedError

    def _keep(self, variable: tf.Variable) -> None:
        self._of_no_row = [*self._of_no_row, variable]

    @property
    def _own_state(self) -> list[tf.Variable]:
        return [self._slots_id, self.u_product, self._rejected, *self._of_no_row]

    lr = Wrapping.learning_rate

    @classmethod
    def from_config(
        cls, config: dict[str, Any], custom_objects: dict[str, Any] | None = None
    ) -> TablesAndOthers:
        """Makes an optimizer from the result of `get_config`."""
        serialized = config["optimizer"]
        # A SavedModel holds only the class name, which a new and a legacy class may share.
        deserialize = (
            tf_keras.saving.deserialize_keras_object
            if "module" in serialized
            else tf_keras.optimizers.deserialize
        )
        inner = deserialize(serialized, custom_objects=custom_objects)
        return cls(**{**config, "optimizer": inner})


@tf_keras.saving.register_keras_serializable(package="de_core")
class Keras2Optimizer(TablesAndOthers, tf_keras.optimizers.Optimizer):
    """A tf_keras optimizer that also trains dynamic tables; `DynamicEmbeddingOptimizer` makes it.

    Takes the arguments of `TablesAndOthers`.
    """

    @staticmethod
    def rule_of(optimizer: Any) -> Rule | None:
        """Returns the rule of a new tf_keras optimizer, or None if the engine has none."""
        of = tf_keras.optimizers
        return rules.rule_of(optimizer, rules.KERAS, [of], ["update_step"], of.Optimizer)

    def _rate_and_average(self, inner: Any) -> tuple[Any, Any]:
        rate = inner._learning_rate
        if isinstance(rate, tf_keras.optimizers.schedules.LearningRateSchedule):
            rate = rate(inner.iterations)  # `learning_rate` is stale until `apply_gradients`.
        return rate, inner.ema_momentum if inner.use_ema else None

    def _keep(self, variable: tf.Variable) -> None:
        super()._keep(variable)
        # tf_keras's checkpoints contain later additions to `_variables`, but to no other list.
        self._variables.append(variable)

    def build(self, var_list: Sequence[Any]) -> None:
        """Makes the wrapped optimizer's slots for ordinary variables."""
        self._build_others(var_list)
        self._built = True

    def compute_gradients(self, loss: Any, var_list: Any, tape: Any = None) -> Any:
        """Returns pairs of a gradient and its variable. The variable of a table is its anchor.

        Args:
            loss: A tensor that `tape` recorded, or a function that returns one.
            var_list: The variables, in the form that `minimize` takes.
            tape: A `tf.GradientTape`, or None if `loss` is a function.
        """
        loss, var_list = filled_by_loss(loss, var_list)
        return super().compute_gradients(loss, var_list, tape)

    @property
    def variables(self) -> Any:
        """The state that is saved with a model: this optimizer's and the wrapped optimizer's."""
        return [*self._own_state, *self.inner_optimizer.variables]


@tf_keras.saving.register_keras_serializable(package="de_core")
class Keras2LegacyOptimizer(TablesAndOthers, tf_keras.optimizers.legacy.Optimizer):
    """A legacy tf_keras optimizer that also trains dynamic tables."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._track_trackable(self.inner_optimizer, "inner_optimizer")

    @staticmethod
    def rule_of(optimizer: Any) -> Rule | None:
        """Returns the engine's rule for a legacy optimizer, or None if the engine has none."""
        if optimizer.gradient_transformers:
            raise NotImplementedError(
                "An optimizer of tables must have no `gradient_transformers`. "
                + received(gradient_transformers=optimizer.gradient_transformers)
                + " Transform the gradients before you call `apply_gradients`."
            )
        of = tf_keras.optimizers.legacy
        methods = ["_resource_apply_dense", "_prepare", "_prepare_local"]
        return rules.rule_of(optimizer, rules.LEGACY, [of], methods, of.Optimizer)

    def _rate_and_average(self, inner: Any) -> tuple[Any, Any]:
        # `_decayed_lr` applies the schedule or `decay`. Nadam uses `decay` for its momentum.
        is_nadam = isinstance(inner, tf_keras.optimizers.legacy.Nadam)
        return inner.learning_rate if is_nadam else inner._decayed_lr(tf.float32), None

    def _make_state(self) -> None:
        super()._make_state()
        for name in ("_slots_id", "u_product", "_rejected"):
            self._track_trackable(getattr(self, name), name, overwrite=True)

    def _require_own_mode(self) -> None:
        """Creates the variables again in a TensorFlow 1 graph if the optimizer is unused.

        Raises:
            RuntimeError: The optimizer has been used eagerly, and now runs in a TensorFlow 1 graph.
        """
        if self._made_eagerly and not self._tables and not is_eager_outside():
            self._make_state()  # The wrapped optimizer makes its variables at the first step.
        super()._require_own_mode()

    def _keep(self, variable: tf.Variable) -> None:
        self._track_trackable(variable, f"of_no_row_{len(self._of_no_row)}")
        super()._keep(variable)

    @property
    def name(self) -> str:
        """The optimizer's name; by default the wrapped optimizer's name."""
        return str(self._name)

    @property
    def weights(self) -> list[Any]:
        """The state that is saved with a model: this optimizer's and the wrapped optimizer's."""
        return [*self._own_state, *self.inner_optimizer.weights]

    def variables(self) -> list[Any]:
        """Returns `weights`."""
        return self.weights
