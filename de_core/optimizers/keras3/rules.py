"""The Keras optimizers that run inside the tables, and their hyperparameters.

A rule is the engine's version of an optimizer's `update_step`, run on the touched rows only. The
formulas of `keras.optimizers` and `tf_keras.optimizers` are the same.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf

from de_core.optimizers import rule_settings
from de_core.optimizers.rule_settings import Power, Settings, as_scalar


class Moment(NamedTuple):
    """The numbers of one optimizer step that the settings of a rule depend on.

    Attributes:
        step: The number of this step, counted from 1.
        learning_rate: The learning rate of this step.
        u_product: For Nadam, u_1 * … * u_step; otherwise None.
        dtype: The dtype in which the engine computes rows.
    """

    step: tf.Tensor
    learning_rate: Any
    u_product: Any
    dtype: tf.DType

    def power(self, beta: Any) -> Power:
        """Returns beta to the power of the step, computed in the rows' dtype as Keras does."""
        return Power(beta, self.step)


def nadam_u(optimizer: Any, step: Any, dtype: tf.DType) -> tf.Tensor:
    """Returns u_step, Nadam's momentum at a step."""
    return as_scalar(optimizer.beta_1, dtype) * (1.0 - 0.5 * Power(0.96, step).value(dtype))


class Rule(NamedTuple):
    """How to run a Keras optimizer as an update rule of the C++ engine.

    Attributes:
        name: Function of the optimizer that returns the rule's name in the engine.
        settings: Function of the optimizer and a step's `Moment` that returns the rule's settings.
        u: Function of the optimizer, the step and the dtype that returns the momentum at that step.
            Only Nadam's rule uses it.
    """

    name: Callable[[Any], str]
    settings: Callable[[Any, Moment], Settings]
    u: Callable[[Any, Any, tf.DType], tf.Tensor] = nadam_u


def _sgd(optimizer: Any, moment: Moment) -> Settings:
    if not optimizer.momentum:
        return rule_settings.SgdSettings(moment.learning_rate)
    return rule_settings.MomentumSettings(
        moment.learning_rate, optimizer.momentum, bool(optimizer.nesterov)
    )


def _adagrad(optimizer: Any, moment: Moment) -> Settings:
    return rule_settings.AdagradSettings(
        moment.learning_rate, optimizer.epsilon, optimizer.initial_accumulator_value
    )


def _adadelta(optimizer: Any, moment: Moment) -> Settings:
    return rule_settings.AdadeltaSettings(moment.learning_rate, optimizer.rho, optimizer.epsilon)


def _rmsprop(optimizer: Any, moment: Moment) -> Settings:
    return rule_settings.RmspropSettings(
        moment.learning_rate,
        optimizer.rho,
        optimizer.momentum,
        optimizer.epsilon,
        centered=bool(optimizer.centered),
        initial_rms=0.0,
    )


def _adam(optimizer: Any, moment: Moment) -> Settings:
    return rule_settings.AdamSettings(
        moment.learning_rate,
        optimizer.beta_1,
        optimizer.beta_2,
        optimizer.epsilon,
        beta1_power=moment.power(optimizer.beta_1),
        beta2_power=moment.power(optimizer.beta_2),
        amsgrad=bool(optimizer.amsgrad),
    )


def _adamax(optimizer: Any, moment: Moment) -> Settings:
    return rule_settings.AdamaxSettings(
        moment.learning_rate,
        optimizer.beta_1,
        optimizer.beta_2,
        optimizer.epsilon,
        beta1_power=moment.power(optimizer.beta_1),
    )


def _nadam(optimizer: Any, moment: Moment) -> Settings:
    return rule_settings.NadamSettings(
        moment.learning_rate,
        optimizer.beta_1,
        optimizer.beta_2,
        optimizer.epsilon,
        beta2_power=moment.power(optimizer.beta_2),
        u=nadam_u(optimizer, moment.step, moment.dtype),
        next_u=nadam_u(optimizer, moment.step + 1, moment.dtype),
        u_product=moment.u_product,
    )


def _lamb(optimizer: Any, moment: Moment) -> Settings:
    return rule_settings.LambSettings(
        moment.learning_rate,
        optimizer.beta_1,
        optimizer.beta_2,
        optimizer.epsilon,
        beta1_power=moment.power(optimizer.beta_1),
        beta2_power=moment.power(optimizer.beta_2),
    )


def _ftrl(optimizer: Any, moment: Moment) -> Settings:
    return rule_settings.FtrlSettings(
        moment.learning_rate,
        optimizer.learning_rate_power,
        l1=optimizer.l1_regularization_strength,
        l2=optimizer.l2_regularization_strength,
        l2_shrinkage=optimizer.l2_shrinkage_regularization_strength,
        beta=optimizer.beta,
        initial_accumulator=optimizer.initial_accumulator_value,
    )


def _lion(optimizer: Any, moment: Moment) -> Settings:
    return rule_settings.LionSettings(moment.learning_rate, optimizer.beta_1, optimizer.beta_2)


#: The rules by the name of the class in `keras.optimizers` and `tf_keras.optimizers`.
RULES = {
    "SGD": Rule(lambda optimizer: "momentum" if optimizer.momentum else "sgd", _sgd),
    "Adagrad": Rule(lambda _: "adagrad", _adagrad),
    "Adadelta": Rule(lambda _: "adadelta", _adadelta),
    "RMSprop": Rule(lambda _: "rmsprop", _rmsprop),
    "Adam": Rule(lambda _: "adam", _adam),
    "AdamW": Rule(lambda _: "adam", _adam),
    "Adamax": Rule(lambda _: "adamax", _adamax),
    "Nadam": Rule(lambda _: "nadam", _nadam),
    "Ftrl": Rule(lambda _: "ftrl", _ftrl),
    "Lion": Rule(lambda _: "lion", _lion),
    "Lamb": Rule(lambda _: "lamb", _lamb),
    "RowwiseAdagrad": Rule(lambda _: "rowwise_adagrad", _adagrad),
    "RowwiseAdam": Rule(lambda _: "rowwise_adam", _lamb),
}


def rule_of(optimizer: Any, *namespaces: Any) -> Rule | None:
    """Returns the engine's rule for an optimizer, or None if the engine has none.

    A subclass has the rule of its base class unless it overrides `update_step`.

    Args:
        optimizer: An optimizer of Keras 3 or tf_keras.
        *namespaces: The modules with the known classes, such as `keras.optimizers`.
    """
    for name, rule in RULES.items():
        for namespace in namespaces:
            known = getattr(namespace, name, None)
            if known is not None and type(optimizer).update_step is known.update_step:
                return rule
    return None
