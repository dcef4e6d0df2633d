"""The tf_keras optimizers that run inside the tables, and their hyperparameters.

New tf_keras optimizers have the formulas of Keras 3. Legacy ones call TensorFlow's training ops,
some of which add epsilon outside the square root.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf
import tf_keras

from de_core.base.checks import received
from de_core.optimizers.keras3 import rules
from de_core.optimizers.plan import power


class Rule(NamedTuple):
    """One native update rule.

    Attributes:
        name: Returns the engine's name of the rule for an optimizer.
        hyper: Returns the hyperparameters. Takes the optimizer, the number of this step counted
            from 1, Nadam's product of momenta or None, and the dtype in which rows are computed.
        u: Returns Nadam's momentum at a step. Takes the optimizer, the step and the dtype.
    """

    name: Callable[[Any], str]
    hyper: Callable[[Any, tf.Tensor, Any, tf.DType], list[Any]]
    u: Callable[[Any, tf.Tensor, tf.DType], tf.Tensor]


def learning_rate(optimizer: Any) -> Any:
    """Returns the learning rate of a new tf_keras optimizer's next step."""
    rate = optimizer._learning_rate
    if isinstance(rate, tf_keras.optimizers.schedules.LearningRateSchedule):
        rate = rate(optimizer.iterations)  # `learning_rate` is stale until `apply_gradients`.
    return rate


def rule_of(optimizer: Any) -> Rule | None:
    """Returns the native rule of a new tf_keras optimizer, or None if it has none.

    Raises:
        NotImplementedError: The optimizer has no formula.
    """
    rule = rules.rule_of(optimizer, tf_keras.optimizers)
    if rule is None:
        _require_formula(optimizer, "update_step", tf_keras.optimizers.Optimizer)
        return None

    def hyper(optimizer: Any, step: tf.Tensor, product: Any, dtype: tf.DType) -> list[Any]:
        rate = learning_rate(optimizer)
        return [rate, *rule.settings(optimizer, rules.Moment(step, rate, product, dtype))]

    return Rule(rule.name, hyper, rules.nadam_u)


def _values(*names: str) -> Callable[..., list[Any]]:
    """Returns a function that reads an optimizer's attributes, and calls the callable ones."""

    def read(optimizer: Any, *_: Any) -> list[Any]:
        values = []
        for name in names:
            value = getattr(optimizer, name)
            values.append(value() if callable(value) else value)
        return values

    return read


def _powers(optimizer: Any, step: tf.Tensor, dtype: tf.DType) -> list[tf.Tensor]:
    return [power(beta, step, dtype) for beta in _values("beta_1", "beta_2")(optimizer)]


def _nadam_u(optimizer: Any, step: Any, dtype: tf.DType) -> tf.Tensor:
    faded = power(0.96, optimizer._initial_decay * tf.cast(step, dtype), dtype)
    return tf.cast(optimizer.beta_1, dtype) * (1.0 - 0.5 * faded)


_BETAS = _values("beta_1", "beta_2", "epsilon")
Settings = Callable[[Any, tf.Tensor, Any, tf.DType], list[Any]]
# A subclass that overrides one of these methods has another formula.
_FORMULA = ("_resource_apply_dense", "_prepare", "_prepare_local")
_LEGACY: dict[str, tuple[Callable[[Any], str], Settings]] = {
    "SGD": (
        lambda optimizer: "momentum" if optimizer._momentum else "sgd",
        lambda o, *_: _values("momentum", "nesterov")(o) if o._momentum else [],
    ),
    "Adagrad": (lambda _: "adagrad_v2", _values("epsilon", "_initial_accumulator_value")),
    "Adadelta": (lambda _: "adadelta", _values("rho", "epsilon")),
    "RMSprop": (
        lambda optimizer: "rmsprop" if optimizer._momentum else "rmsprop_v2",
        lambda o, *_: [
            *_values("rho", *(["momentum"] if o._momentum else []), "epsilon", "centered")(o),
            0.0,
        ],
    ),
    "Adam": (
        lambda _: "adam",
        lambda o, step, _, dtype: [*_BETAS(o), *_powers(o, step, dtype), bool(o.amsgrad)],
    ),
    "Adamax": (
        lambda _: "adamax",
        lambda o, step, _, dtype: [*_BETAS(o), _powers(o, step, dtype)[0]],
    ),
    "Nadam": (
        lambda _: "nadam",
        lambda o, step, product, dtype: [
            *_BETAS(o),
            _powers(o, step, dtype)[1],
            _nadam_u(o, step, dtype),
            _nadam_u(o, step + 1, dtype),
            product,
        ],
    ),
    "Ftrl": (
        lambda _: "ftrl",
        _values(
            "learning_rate_power",
            "l1_regularization_strength",
            "l2_regularization_strength",
            "_l2_shrinkage_regularization_strength",
            "beta",
            "_initial_accumulator_value",
        ),
    ),
}


def legacy_rule_of(optimizer: Any) -> Rule | None:
    """Returns the native rule of a legacy tf_keras optimizer, or None if it has none.

    Raises:
        NotImplementedError: The optimizer has no formula for dense gradients, or transforms
            gradients.
    """
    if optimizer.gradient_transformers:
        raise NotImplementedError(
            "An optimizer of tables must have no `gradient_transformers`. "
            + received(gradient_transformers=optimizer.gradient_transformers)
            + " Transform the gradients before you call `apply_gradients`."
        )
    for name, (rule, settings) in _LEGACY.items():
        known = getattr(tf_keras.optimizers.legacy, name)
        if all(getattr(type(optimizer), part) is getattr(known, part) for part in _FORMULA):

            def hyper(
                optimizer: Any,
                step: tf.Tensor,
                product: Any,
                dtype: tf.DType,
                settings: Settings = settings,
            ) -> list[Any]:
                # `_decayed_lr` applies the schedule or `decay`. Nadam's `decay` is no such decay.
                fixed = isinstance(optimizer, tf_keras.optimizers.legacy.Nadam)
                rate = optimizer.learning_rate if fixed else optimizer._decayed_lr(tf.float32)
                return [rate, *settings(optimizer, step, product, dtype)]

            return Rule(rule, hyper, _nadam_u)
    _require_formula(optimizer, _FORMULA[0], tf_keras.optimizers.legacy.Optimizer)
    return None


def _require_formula(optimizer: Any, name: str, base: type) -> None:
    if getattr(type(optimizer), name) is getattr(base, name):
        raise NotImplementedError(
            f"An optimizer of tables must have a formula for dense gradients: define `{name}`. "
            + received(opt=optimizer)
        )
