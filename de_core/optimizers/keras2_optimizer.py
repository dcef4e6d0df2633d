"""The tf_keras (Keras 2) optimizers for models with dynamic tables; needs tf_keras."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Sequence
from typing import Any

import tensorflow as tf
import tf_keras

from de_core.optimizers import clipping, keras2_rules, plan
from de_core.optimizers.accumulation import Trained
from de_core.optimizers.targets import Targets, table_under
from de_core.plain_python import plain_python
from de_core.sharded_table import ShardedTable


class TablesAndOthers:
    """What both kinds of tf_keras optimizer share: tables here, the rest to the one wrapped.

    Args:
        optimizer: The optimizer to wrap.
        rule: Its native rule.
        bp_v2: See `DynamicEmbeddingOptimizer`.
        reject_nonfinite: See `DynamicEmbeddingOptimizer`.
    """

    inner_optimizer: Any

    def start(self, optimizer: Any, rule: Any, bp_v2: bool, reject_nonfinite: bool) -> None:
        """Makes the state of its own."""
        self.inner_optimizer = optimizer
        self.bp_v2 = bool(bp_v2)
        self.reject_nonfinite = bool(reject_nonfinite)
        self._rule = rule
        self._trained_tables: dict[str, ShardedTable] = {}
        with tf.init_scope():
            # Whose slots are in the tables' rows, as in the Keras 3 optimizer.
            self.slots_id = tf.Variable(secrets.randbits(60), dtype=tf.int64, trainable=False)
            self.u_product = tf.Variable(1.0, trainable=False)

    @plain_python
    def apply_gradients(
        self, grads_and_vars: Iterable[tuple[Any, Any]], name: str | None = None, **settings: Any
    ) -> Any:
        """Does one step.

        Args:
            grads_and_vars: Pairs of a gradient, or None, and its variable.
            name: Of the operation.
            **settings: As the wrapped optimizer takes them.

        Returns:
            What the wrapped optimizer returns, or the number of steps.

        Raises:
            TypeError: A table's values are no floating-point numbers.
            ValueError: There is no gradient at all.
        """
        pairs = list(grads_and_vars)
        targets = Targets.of((gradient for gradient, _ in pairs), (each for _, each in pairs))
        targets.require_one()
        for _, table in targets.trained:
            self._trained_tables[table.name] = table
        dense = [(each, variable) for each, variable in targets.dense if each is not None]
        checks = targets.require_finite() if self.reject_nonfinite else []
        with tf.control_dependencies(checks):
            gradients, scale = clipping.clip_tables(
                self.inner_optimizer,
                [gradient for gradient, _ in targets.trained],
                [gradient for gradient, _ in dense],
            )
            tables = [table for _, table in targets.trained]
            done = self._apply_to_tables(list(zip(gradients, tables, strict=True)))
        # A table that refuses its gradient stops the step before the rest.
        with tf.control_dependencies(done):
            if not dense:
                return self.inner_optimizer.iterations.assign_add(1)
            if scale is not None:
                dense = [(clipping.scaled(each, scale), variable) for each, variable in dense]
            return self.inner_optimizer.apply_gradients(dense, name=name, **settings)

    def _apply_to_tables(self, trained: Trained) -> list[Any]:
        if not trained:
            return []
        inner = self.inner_optimizer
        momentum = overwrite = None
        if getattr(inner, "use_ema", False):
            momentum = inner.ema_momentum
            if inner.ema_overwrite_frequency:
                overwrite = tf.equal((inner.iterations + 1) % inner.ema_overwrite_frequency, 0)
        step = tf.convert_to_tensor(inner.iterations) + 1
        product = None
        if self._rule.name(inner) == "nadam":
            now = self._rule.u(inner, step, tf.float32)
            product = self.u_product.assign(self.u_product * now)

        def hyper(dtype: tf.DType) -> list[Any]:
            return list(self._rule.hyper(inner, step, product, dtype))

        native = plan.Plan(
            self._rule.name(inner), hyper, getattr(inner, "weight_decay", None), momentum
        )
        done = plan.apply(native, trained, self.slots_owner)
        done = [each for each in done if each is not None]
        if overwrite is not None:
            with tf.control_dependencies(done):
                tf.cond(overwrite, self._take_averages, lambda: None)
        return done

    def _take_averages(self) -> None:
        for table in self._trained_tables.values():
            table.take_averages(self.slots_owner)

    @property
    def tables(self) -> list[ShardedTable]:
        """The tables that it trained."""
        return list(self._trained_tables.values())

    @property
    def slots_owner(self) -> tf.Tensor:
        """The name under which the tables keep this optimizer's slots, a scalar string tensor."""
        family = type(self.inner_optimizer).__name__.lower()
        return tf.strings.join([family, tf.strings.as_string(self.slots_id)], "_")

    @property
    def iterations(self) -> Any:
        """Steps done, by the wrapped optimizer."""
        return self.inner_optimizer.iterations

    @iterations.setter
    def iterations(self, variable: Any) -> None:
        self.inner_optimizer.iterations = variable

    @property
    def learning_rate(self) -> Any:
        """That of the wrapped optimizer."""
        return self.inner_optimizer.learning_rate

    @learning_rate.setter
    def learning_rate(self, learning_rate: Any) -> None:
        self.inner_optimizer.learning_rate = learning_rate

    lr = learning_rate

    def settings(self) -> dict[str, Any]:
        """Returns what `from_config` makes an equal optimizer of."""
        return {
            "name": self.name,  # type: ignore[attr-defined]
            "optimizer": tf_keras.saving.serialize_keras_object(self.inner_optimizer),
            "bp_v2": self.bp_v2,
            "reject_nonfinite": self.reject_nonfinite,
        }


def _with_inner(config: dict[str, Any]) -> dict[str, Any]:
    inner = tf_keras.saving.deserialize_keras_object(config["optimizer"])
    return {**config, "optimizer": inner}


@tf_keras.saving.register_keras_serializable(package="de_core")
class Keras2Optimizer(TablesAndOthers, tf_keras.optimizers.Optimizer):
    """A tf_keras optimizer that also trains dynamic tables; `DynamicEmbeddingOptimizer` makes it.

    Args:
        optimizer: The optimizer to wrap.
        bp_v2: See `DynamicEmbeddingOptimizer`.
        reject_nonfinite: See `DynamicEmbeddingOptimizer`.
        name: Of the optimizer.
    """

    def __init__(
        self,
        optimizer: Any,
        bp_v2: bool = False,
        reject_nonfinite: bool = False,
        name: str | None = None,
    ) -> None:
        rule = keras2_rules.rule_of(optimizer)
        self.inner_optimizer = optimizer
        super().__init__(name=name or optimizer.name)
        self.start(optimizer, rule, bp_v2, reject_nonfinite)

    def build(self, var_list: Sequence[Any]) -> None:
        """Makes the wrapped optimizer's slots of the ordinary variables.

        Args:
            var_list: All trainable variables, anchors included.
        """
        dense = []
        for variable in var_list:
            table = table_under(variable)
            if table is None:
                dense.append(variable)
            else:
                self._trained_tables[table.name] = table
        self.inner_optimizer.build(dense)
        self._built = True

    @property
    def variables(self) -> Any:
        """The state that is saved with a model: its own and the wrapped optimizer's."""
        return [self.slots_id, self.u_product, *self.inner_optimizer.variables]

    def finalize_variable_values(self, var_list: Iterable[Any]) -> None:
        """Lets the wrapped optimizer finish the ordinary variables and the tables after training.

        Args:
            var_list: Of the model's trainable variables.
        """
        dense = [each for each in var_list if table_under(each) is None]
        if self.inner_optimizer.use_ema:
            self._take_averages()
        self.inner_optimizer.finalize_variable_values(dense)

    def get_config(self) -> dict[str, Any]:
        """Returns what `from_config` makes an equal optimizer of."""
        return self.settings()

    @classmethod
    def from_config(
        cls, config: dict[str, Any], custom_objects: dict[str, Any] | None = None
    ) -> Keras2Optimizer:
        """Makes an optimizer of `get_config`'s result."""
        del custom_objects
        return cls(**_with_inner(config))


@tf_keras.saving.register_keras_serializable(package="de_core")
class Keras2LegacyOptimizer(TablesAndOthers, tf_keras.optimizers.legacy.Optimizer):
    """A legacy tf_keras optimizer that also trains dynamic tables.

    Args:
        optimizer: The optimizer to wrap.
        bp_v2: See `DynamicEmbeddingOptimizer`.
        reject_nonfinite: See `DynamicEmbeddingOptimizer`.
        name: Of the optimizer.
    """

    def __init__(
        self,
        optimizer: Any,
        bp_v2: bool = False,
        reject_nonfinite: bool = False,
        name: str | None = None,
    ) -> None:
        rule = keras2_rules.legacy_rule_of(optimizer)
        super().__init__(name=name or optimizer._name)
        self.start(optimizer, rule, bp_v2, reject_nonfinite)
        self._track_trackable(optimizer, "inner_optimizer")
        self._track_trackable(self.slots_id, "slots_id")
        self._track_trackable(self.u_product, "u_product")

    @property
    def name(self) -> str:
        """The name it was given, or the wrapped optimizer's."""
        return str(self._name)

    @property
    def weights(self) -> list[Any]:
        """The state that is saved with a model: its own and the wrapped optimizer's."""
        return [self.slots_id, self.u_product, *self.inner_optimizer.weights]

    def variables(self) -> list[Any]:
        """Returns the same as `weights`."""
        return self.weights

    def get_config(self) -> dict[str, Any]:
        """Returns what `from_config` makes an equal optimizer of."""
        return self.settings()

    @classmethod
    def from_config(
        cls, config: dict[str, Any], custom_objects: dict[str, Any] | None = None
    ) -> Keras2LegacyOptimizer:
        """Makes an optimizer of `get_config`'s result."""
        del custom_objects
        return cls(**_with_inner(config))
