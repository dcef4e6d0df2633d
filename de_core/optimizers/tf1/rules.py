"""The TensorFlow 1 optimizers that run inside the tables, and their hyperparameters.

The formulas come from TensorFlow's training ops. These classes have no public attributes for their
settings, so this module reads private attributes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf

from de_core.base.checks import received
from de_core.optimizers import rule_settings
from de_core.optimizers.rule_settings import Power, Settings


class Rule(NamedTuple):
    """How to run a TensorFlow 1 optimizer as an update rule of the C++ engine.

    Attributes:
        name: Function of the optimizer that returns the rule's name in the engine.
        settings: Function that returns the rule's settings. Takes the optimizer, and the number of
            this step, counted from 1.
        slots: Function of the optimizer that returns the names of its slots.
        counts: True if the settings depend on the number of the step.
    """

    name: Callable[[Any], str]
    settings: Callable[[Any, tf.Tensor], Settings]
    slots: Callable[[Any], list[str]]
    counts: bool = False


def _value(setting: Any) -> Any:
    return setting() if callable(setting) and not tf.is_tensor(setting) else setting


def _values(optimizer: Any, *names: str) -> list[Any]:
    return [_value(getattr(optimizer, f"_{name}")) for name in names]


def _sgd(optimizer: Any, *_: Any) -> Settings:
    return rule_settings.SgdSettings(*_values(optimizer, "learning_rate"))


def _momentum(optimizer: Any, *_: Any) -> Settings:
    return rule_settings.MomentumSettings(
        *_values(optimizer, "learning_rate", "momentum", "use_nesterov")
    )


def _adagrad(optimizer: Any, *_: Any) -> Settings:
    rate, initial = _values(optimizer, "learning_rate", "initial_accumulator_value")
    return rule_settings.AdagradSettings(rate, eps=0.0, initial_accumulator=initial)


def _adagrad_da(optimizer: Any, *_: Any) -> Settings:
    rate, l1, l2 = _values(optimizer, "learning_rate", *_L1_L2)
    return rule_settings.AdagradDaSettings(
        rate,
        l1,
        l2,
        _value(optimizer._initial_gradient_squared_accumulator_value),
        # AdagradDA counts steps by its global step, which is incremented only after the update.
        step=tf.cast(optimizer._global_step, tf.int64) + 1,
    )


def _adadelta(optimizer: Any, *_: Any) -> Settings:
    return rule_settings.AdadeltaSettings(*_values(optimizer, "lr", "rho", "epsilon"))


def _adam(optimizer: Any, step: tf.Tensor) -> Settings:
    rate, beta_1, beta_2, epsilon = _values(optimizer, "lr", "beta1", "beta2", "epsilon")
    return rule_settings.AdamSettings(
        rate,
        beta_1,
        beta_2,
        epsilon,
        beta1_power=Power(beta_1, step),
        beta2_power=Power(beta_2, step),
        amsgrad=False,
    )


def _ftrl(optimizer: Any, *_: Any) -> Settings:
    rate, rate_power, l1, l2 = _values(optimizer, "learning_rate", "learning_rate_power", *_L1_L2)
    return rule_settings.FtrlSettings(
        rate,
        rate_power,
        l1,
        l2,
        l2_shrinkage=_value(optimizer._l2_shrinkage_regularization_strength),
        beta=_value(optimizer._beta),
        initial_accumulator=_value(optimizer._initial_accumulator_value),
    )


def _rmsprop(optimizer: Any, *_: Any) -> Settings:
    names = ("learning_rate", "decay", "momentum", "epsilon", "centered")
    rate, rho, momentum, epsilon, centered = _values(optimizer, *names)
    return rule_settings.RmspropSettings(rate, rho, momentum, epsilon, centered, initial_rms=1.0)


def _proximal_sgd(optimizer: Any, *_: Any) -> Settings:
    return rule_settings.ProximalSgdSettings(*_values(optimizer, "learning_rate", *_L1_L2))


def _proximal_adagrad(optimizer: Any, *_: Any) -> Settings:
    rate, l1, l2 = _values(optimizer, "learning_rate", *_L1_L2)
    initial = _value(optimizer._initial_accumulator_value)
    return rule_settings.ProximalAdagradSettings(rate, l1, l2, initial)


def _rmsprop_slots(optimizer: Any) -> list[str]:
    momentum = ["momentum"] if _value(optimizer._momentum) else []
    return ["rms", *momentum, *(["mg"] if optimizer._centered else [])]


def _named(name: str) -> Callable[[Any], str]:
    return lambda _: name


def _slots(*names: str) -> Callable[[Any], list[str]]:
    return lambda _: list(names)


_L1_L2 = ("l1_regularization_strength", "l2_regularization_strength")
#: The rules by the name of the class in `tf.compat.v1.train`, without "Optimizer".
RULES = {
    "GradientDescent": Rule(_named("sgd"), _sgd, _slots()),
    "Momentum": Rule(_named("tf1_momentum"), _momentum, _slots("momentum")),
    "Adagrad": Rule(_named("adagrad"), _adagrad, _slots("accumulator")),
    "AdagradDA": Rule(
        _named("adagrad_da"),
        _adagrad_da,
        _slots("gradient_accumulator", "gradient_squared_accumulator"),
    ),
    "Adadelta": Rule(_named("adadelta"), _adadelta, _slots("accum_grad", "accum_var")),
    "Adam": Rule(_named("adam"), _adam, _slots("m", "v"), counts=True),
    "Ftrl": Rule(_named("ftrl"), _ftrl, _slots("accumulator", "linear")),
    "RMSProp": Rule(_named("rmsprop"), _rmsprop, _rmsprop_slots),
    "ProximalGradientDescent": Rule(_named("proximal_sgd"), _proximal_sgd, _slots()),
    "ProximalAdagrad": Rule(_named("proximal_adagrad"), _proximal_adagrad, _slots("accumulator")),
}


# A subclass that overrides one of these methods has another formula.
_FORMULA = ("_resource_apply_dense", "_prepare", "_finish")


def rule_of(optimizer: Any) -> Rule | None:
    """Returns the engine's rule for a TensorFlow 1 optimizer, or None if the engine has none.

    A subclass has the rule of its base class unless it overrides a method in `_FORMULA`.

    Raises:
        NotImplementedError: The optimizer has no formula for dense gradients.
    """
    for name, rule in RULES.items():
        known = getattr(tf.compat.v1.train, f"{name}Optimizer")
        if isinstance(optimizer, known) and all(
            getattr(type(optimizer), part) is getattr(known, part) for part in _FORMULA
        ):
            return rule
    base = tf.compat.v1.train.Optimizer
    if all(
        getattr(type(optimizer), dense) is getattr(base, dense)
        for dense in ("_resource_apply_dense", "_apply_dense")
    ):
        raise NotImplementedError(
            "An optimizer of tables must have a formula for dense gradients: define "
            f"`_resource_apply_dense`. {received(opt=optimizer)}"
        )
    return None
