"""The tf_keras optimizers that run inside the tables, and their hyperparameters.

New tf_keras optimizers have the formulas of Keras 3. Legacy ones call TensorFlow's training ops,
some of which add epsilon outside the square root.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf
import tf_keras
from tf_keras.optimizers import legacy

from de_core.base.checks import received
from de_core.optimizers import rule_settings
from de_core.optimizers.keras3 import rules
from de_core.optimizers.keras3.rules import Moment, Rule
from de_core.optimizers.rule_settings import Power, Settings, as_scalar


def learning_rate(optimizer: Any) -> Any:
    """Returns the learning rate of a tf_keras optimizer's next step."""
    if isinstance(optimizer, legacy.Optimizer):
        # `_decayed_lr` applies the schedule or `decay`. Nadam uses `decay` for its momentum.
        is_nadam = isinstance(optimizer, legacy.Nadam)
        return optimizer.learning_rate if is_nadam else optimizer._decayed_lr(tf.float32)
    rate = optimizer._learning_rate
    if isinstance(rate, tf_keras.optimizers.schedules.LearningRateSchedule):
        rate = rate(optimizer.iterations)  # `learning_rate` is stale until `apply_gradients`.
    return rate


def rule_of(optimizer: Any) -> Rule | None:
    """Returns the engine's rule for a new tf_keras optimizer, or None if the engine has none.

    Raises:
        NotImplementedError: The optimizer has no formula.
    """
    rule = rules.rule_of(optimizer, tf_keras.optimizers)
    if rule is None:
        _require_formula(optimizer, "update_step", tf_keras.optimizers.Optimizer)
    return rule


def _value(setting: Any) -> Any:
    return setting() if callable(setting) else setting


def _sgd(optimizer: Any, moment: Moment) -> Settings:
    if not optimizer._momentum:
        return rule_settings.SgdSettings(moment.learning_rate)
    return rule_settings.MomentumSettings(
        moment.learning_rate, _value(optimizer.momentum), _value(optimizer.nesterov)
    )


def _adagrad(optimizer: Any, moment: Moment) -> Settings:
    return rule_settings.AdagradSettings(
        moment.learning_rate, _value(optimizer.epsilon), optimizer._initial_accumulator_value
    )


def _adadelta(optimizer: Any, moment: Moment) -> Settings:
    return rule_settings.AdadeltaSettings(
        moment.learning_rate, _value(optimizer.rho), _value(optimizer.epsilon)
    )


def _rmsprop(optimizer: Any, moment: Moment) -> Settings:
    rho, epsilon = _value(optimizer.rho), _value(optimizer.epsilon)
    centered = _value(optimizer.centered)
    if not optimizer._momentum:
        return rule_settings.RmspropV2Settings(moment.learning_rate, rho, epsilon, centered, 0.0)
    momentum = _value(optimizer.momentum)
    return rule_settings.RmspropSettings(
        moment.learning_rate, rho, momentum, epsilon, centered, initial_rms=0.0
    )


def _adam(optimizer: Any, moment: Moment) -> Settings:
    beta_1, beta_2 = _value(optimizer.beta_1), _value(optimizer.beta_2)
    return rule_settings.AdamSettings(
        moment.learning_rate,
        beta_1,
        beta_2,
        _value(optimizer.epsilon),
        beta1_power=moment.power(beta_1),
        beta2_power=moment.power(beta_2),
        amsgrad=bool(optimizer.amsgrad),
    )


def _adamax(optimizer: Any, moment: Moment) -> Settings:
    beta_1, beta_2 = _value(optimizer.beta_1), _value(optimizer.beta_2)
    return rule_settings.AdamaxSettings(
        moment.learning_rate, beta_1, beta_2, _value(optimizer.epsilon), moment.power(beta_1)
    )


def _nadam_u(optimizer: Any, step: Any, dtype: tf.DType) -> tf.Tensor:
    faded = Power(0.96, optimizer._initial_decay * tf.cast(step, dtype)).value(dtype)
    return as_scalar(optimizer.beta_1, dtype) * (1.0 - 0.5 * faded)


def _nadam(optimizer: Any, moment: Moment) -> Settings:
    beta_1, beta_2 = _value(optimizer.beta_1), _value(optimizer.beta_2)
    return rule_settings.NadamSettings(
        moment.learning_rate,
        beta_1,
        beta_2,
        _value(optimizer.epsilon),
        beta2_power=moment.power(beta_2),
        u=_nadam_u(optimizer, moment.step, moment.dtype),
        next_u=_nadam_u(optimizer, moment.step + 1, moment.dtype),
        u_product=moment.u_product,
    )


def _ftrl(optimizer: Any, moment: Moment) -> Settings:
    return rule_settings.FtrlSettings(
        moment.learning_rate,
        _value(optimizer.learning_rate_power),
        l1=_value(optimizer.l1_regularization_strength),
        l2=_value(optimizer.l2_regularization_strength),
        l2_shrinkage=optimizer._l2_shrinkage_regularization_strength,
        beta=_value(optimizer.beta),
        initial_accumulator=optimizer._initial_accumulator_value,
    )


# A subclass that overrides one of these methods has another formula.
_FORMULA = ("_resource_apply_dense", "_prepare", "_prepare_local")
#: The rules by the name of the class in `tf_keras.optimizers.legacy`.
_LEGACY = {
    "SGD": Rule(lambda optimizer: "momentum" if optimizer._momentum else "sgd", _sgd),
    "Adagrad": Rule(lambda _: "adagrad_v2", _adagrad),
    "Adadelta": Rule(lambda _: "adadelta", _adadelta),
    "RMSprop": Rule(lambda opt: "rmsprop" if opt._momentum else "rmsprop_v2", _rmsprop),
    "Adam": Rule(lambda _: "adam", _adam),
    "Adamax": Rule(lambda _: "adamax", _adamax),
    "Nadam": Rule(lambda _: "nadam", _nadam, _nadam_u),
    "Ftrl": Rule(lambda _: "ftrl", _ftrl),
}


def legacy_rule_of(optimizer: Any) -> Rule | None:
    """Returns the engine's rule for a legacy tf_keras optimizer, or None if the engine has none.

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
    for name, rule in _LEGACY.items():
        known = getattr(legacy, name)
        if all(getattr(type(optimizer), part) is getattr(known, part) for part in _FORMULA):
            return rule
    _require_formula(optimizer, _FORMULA[0], legacy.Optimizer)
    return None


def _require_formula(optimizer: Any, name: str, base: type) -> None:
    if getattr(type(optimizer), name) is getattr(base, name):
        raise NotImplementedError(
            f"An optimizer of tables must have a formula for dense gradients: define `{name}`. "
            + received(opt=optimizer)
        )
