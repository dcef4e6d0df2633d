"""The Keras 3 optimizer for models with dynamic tables."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Sequence
from typing import Any

import keras
import tensorflow as tf

from de_core.anchor import table_of
from de_core.config import received
from de_core.optimizers import clipping, rules
from de_core.plain_python import plain_python


@keras.saving.register_keras_serializable(package="de_core")
class DynamicEmbeddingOptimizer(keras.optimizers.Optimizer):
    """Wraps a Keras optimizer so that it also trains dynamic tables.

    Gradients of ordinary variables go to the wrapped optimizer. Those of tables are applied inside
    the table, in one pass, by the same formula: equal ids are summed, each touched row and its
    slots are updated once, a new id starts from its initial row. Rows without a gradient in a step
    are left as they are (with plain SGD and Adagrad that is what the dense formula does too).

    Learning rate and its schedules, `clipnorm`, `clipvalue`, `global_clipnorm` and
    `loss_scale_factor` of the wrapped optimizer hold for tables as well; its `iterations` count
    once a step. A `keras.optimizers.LossScaleOptimizer` around this one does not work: under
    `mixed_float16` compile with `auto_scale_loss=False` and set `loss_scale_factor`.

    Args:
        optimizer: A `keras.optimizers.SGD`, `Adagrad` or `Adam`, or its name.
        bp_v2: Kept for compatibility: updates inside the table always add up.
        synchronous: Must be False; one process trains here.
        name: Of the optimizer.

    Raises:
        TypeError: `optimizer` is no Keras optimizer, or wrapped already.
        ValueError: It has no native rule for tables, or a setting they do not support.
        NotImplementedError: `synchronous` is True.

    Example:
    >>> import de_core as de
    >>> model = keras.Sequential([de.layers.Embedding(4), keras.layers.Dense(1)])
    >>> model.compile(de.DynamicEmbeddingOptimizer(keras.optimizers.Adam(0.01)), "mse")
    >>> history = model.fit(tf.constant([1, 2, 3], tf.int64), tf.zeros([3, 1]), verbose=0)
    >>> int(model.layers[0].table.size())
    3
    """

    def __init__(
        self,
        optimizer: Any,
        bp_v2: bool = False,
        synchronous: bool = False,
        name: str | None = None,
    ) -> None:
        if synchronous:
            raise NotImplementedError(
                "`synchronous` must be False: training by several processes in step is not "
                + f"available yet. {received(synchronous=synchronous)}"
            )
        inner = keras.optimizers.get(optimizer) if isinstance(optimizer, (str, dict)) else optimizer
        if isinstance(inner, DynamicEmbeddingOptimizer) or not isinstance(
            inner, keras.optimizers.Optimizer
        ):
            raise TypeError(
                "`optimizer` must be a Keras optimizer that is not wrapped yet. "
                + received(optimizer=optimizer)
            )
        super().__init__(learning_rate=0.0, name=name)
        self.inner_optimizer = inner
        self.bp_v2 = bool(bp_v2)
        self.synchronous = False
        self._rule = rules.rule_of(inner)
        # Whose slots are in the tables' rows. Saved and restored with the optimizer, so that it
        # finds its own again, while an optimizer made anew starts with fresh ones.
        self._slots_id = _slots_id_variable()
        self._track_variable(self._slots_id)

    def build(self, variables: Sequence[Any]) -> None:
        """Makes the wrapped optimizer's slots of the ordinary variables.

        Args:
            variables: All trainable variables, anchors included.
        """
        if self.built:
            return
        self.inner_optimizer.build([each for each in variables if table_of(each) is None])
        super().build(list(variables))

    @plain_python
    def apply(self, grads: Iterable[Any], trainable_variables: Iterable[Any] | None = None) -> None:
        """Does one step.

        Args:
            grads: One a variable; None where there is none.
            trainable_variables: What they belong to; None for those the optimizer was built with.

        Raises:
            ValueError: There is no gradient at all.
        """
        gradients = list(grads)
        if trainable_variables is None:
            variables = list(self._trainable_variables)
        else:
            variables = list(trainable_variables)
            self.build(variables)
        tables = [table_of(variable) for variable in variables]
        gradients = self._clipped(gradients, tables)
        trained, dense = [], []
        for gradient, variable, table in zip(gradients, variables, tables, strict=True):
            if table is None:
                dense.append((gradient, variable))
            elif isinstance(gradient, tf.IndexedSlices):  # the zeros of an unused table are dense
                trained.append((gradient, table))
        if trained:
            # Before the wrapped optimizer counts the step: both parts are of the same one.
            self._apply_to_tables(trained)
        if any(gradient is not None for gradient, _ in dense):
            self._apply_to_others(dense)
        elif trained:
            self.inner_optimizer.iterations.assign_add(1)
        else:
            raise ValueError(
                "At least one variable must have a gradient: check that the loss depends on the "
                f"variables. Received: variables={[each.name for each in variables]}."
            )

    @plain_python
    def apply_gradients(self, grads_and_vars: Iterable[tuple[Any, Any]]) -> Any:
        """Does one step and returns the number of steps.

        Args:
            grads_and_vars: Pairs of a gradient and its variable.
        """
        pairs = list(grads_and_vars)
        self.apply([gradient for gradient, _ in pairs], [variable for _, variable in pairs])
        return self.iterations

    def _clipped(self, gradients: list[Any], tables: list[Any]) -> list[Any]:
        """Takes the loss scale off all gradients and clips those of tables."""
        factor = self.inner_optimizer.loss_scale_factor
        if factor is not None:
            gradients = [
                None if each is None else clipping.scaled(each, 1.0 / factor) for each in gradients
            ]
        is_table = [table is not None for table in tables]
        return clipping.clip_tables(self.inner_optimizer, gradients, is_table)

    def _apply_to_tables(self, trained: list[tuple[tf.IndexedSlices, Any]]) -> None:
        inner = self.inner_optimizer
        hyper = rules.hyperparameters(self._rule, inner, inner.learning_rate)
        for gradient, table in trained:
            table.apply(gradient, hyper, rule=self._rule.name(inner), owner=self.slots_owner)

    def _apply_to_others(self, dense: list[tuple[Any, Any]]) -> None:
        gradients, variables = (list(part) for part in zip(*dense, strict=True))
        factor = self.inner_optimizer.loss_scale_factor
        if factor is not None:  # which it takes off itself
            gradients = [
                None if each is None else clipping.scaled(each, factor) for each in gradients
            ]
        self.inner_optimizer.apply(gradients, variables)

    @property
    def slots_owner(self) -> tf.Tensor:
        """The name under which the tables keep this optimizer's slots, a scalar string tensor."""
        family = type(self.inner_optimizer).__name__.lower()
        return tf.strings.join([family, tf.strings.as_string(self._slots_id.value)], "_")

    @property
    def variables(self) -> list[Any]:
        """The state that is saved with a model: its own and the wrapped optimizer's."""
        return [*self._variables, *self.inner_optimizer.variables]

    @property
    def iterations(self) -> Any:
        """Steps done."""
        return self.inner_optimizer.iterations

    @property
    def learning_rate(self) -> Any:
        """That of the wrapped optimizer."""
        return self.inner_optimizer.learning_rate

    @learning_rate.setter
    def learning_rate(self, learning_rate: Any) -> None:
        self.inner_optimizer.learning_rate = learning_rate

    def scale_loss(self, loss: Any) -> Any:
        """Returns the loss scaled as the wrapped optimizer asks for."""
        return self.inner_optimizer.scale_loss(loss)

    def finalize_variable_values(self, var_list: Iterable[Any]) -> None:
        """Lets the wrapped optimizer finish the ordinary variables after training."""
        dense = [each for each in var_list if table_of(each) is None]
        self.inner_optimizer.finalize_variable_values(dense)

    def get_config(self) -> dict[str, Any]:
        """Returns what `from_config` makes an equal optimizer of."""
        return {
            "name": self.name,
            "optimizer": keras.saving.serialize_keras_object(self.inner_optimizer),
            "bp_v2": self.bp_v2,
            "synchronous": self.synchronous,
        }

    @classmethod
    def from_config(
        cls, config: dict[str, Any], custom_objects: dict[str, Any] | None = None
    ) -> DynamicEmbeddingOptimizer:
        """Makes an optimizer of `get_config`'s result.

        Args:
            config: Changed neither here nor later.
            custom_objects: Names of the wrapped optimizer's classes that are not registered.
        """
        inner = keras.saving.deserialize_keras_object(
            config["optimizer"], custom_objects=custom_objects
        )
        return cls(**{**config, "optimizer": inner})


def _slots_id_variable() -> keras.Variable:
    number = secrets.randbits(60)
    return keras.Variable(
        lambda shape, dtype: tf.fill(shape, tf.constant(number, tf.int64)),  # noqa: ARG005
        shape=(),
        dtype="int64",
        trainable=False,
        name="slots_id",
    )
