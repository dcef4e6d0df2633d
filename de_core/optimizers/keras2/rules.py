"""Which tf_keras optimizers run inside the tables, and with which hyperparameters.

The new ones have Keras 3's formulae. The legacy ones call TensorFlow's training ops, some of which
have epsilon outside the root.
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
        name: The engine's name for it, given an optimizer.
        hyper: The hyperparameters, given an optimizer, the number of this step counted from 1,
            Nadam's product of momenta or None, and the dtype that rows are computed in.
        u: Nadam's momentum of a step, given an optimizer, the step and the dtype.
    """

    name: Callable[[Any], str]
    hyper: Callable[[Any, tf.Tensor, Any, tf.DType], list[Any]]
    u: Callable[[Any, tf.Tensor, tf.DType], tf.Tensor]


def learning_rate(optimizer: Any) -> Any:
    """Returns the learning rate of a new tf_keras optimizer's next step."""
    rate = optimizer._learning_rate
    if isinstance(rate, tf_keras.optimizers.schedules.LearningRateSchedule):
        rate = rate(optimizer.iterations)  # the public one is set when a step begins
    return rate


def rule_of(optimizer: Any) -> Rule | None:
    """Returns the native rule of a new tf_keras optimizer, or None if it has none.

    Raises:
        NotImplementedError: It has no formula at all.
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
    """Returns what reads hyperparameters, which may be callables or variables, or attributes."""

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
# What a subclass changes the formula by.
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
        NotImplementedError: It has no formula for dense gradients, or transforms gradients.
    """
    if optimizer.gradient_transformers:
        raise NotImplementedError(
            "An optimizer of tables must have no `gradient_transformers`: give `apply_gradients` "
            "gradients that are transformed. "
            + received(gradient_transformers=optimizer.gradient_transformers)
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
                # By its schedule or its `decay`, by which Nadam alone means something else.
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
