"""The Keras optimizers that run inside the tables, and their hyperparameters.

A rule is the engine's version of an optimizer's `update_step`, run on the touched rows only. The
formulas of `keras.optimizers` and `tf_keras.optimizers` are the same.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf

from de_core.optimizers.plan import power


class Moment(NamedTuple):
    """The state of an optimizer at one step, as far as a rule needs it.

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


class Rule(NamedTuple):
    """One native update rule.

    Attributes:
        name: Returns the engine's name of the rule for an optimizer.
        settings: Returns the hyperparameters after the learning rate.
    """

    name: Callable[[Any], str]
    settings: Callable[[Any, Moment], list[Any]]


def _sgd(optimizer: Any, _: Moment) -> list[Any]:
    return [optimizer.momentum, bool(optimizer.nesterov)] if optimizer.momentum else []


def _adam(optimizer: Any, moment: Moment) -> list[Any]:
    return [*_betas(optimizer), *_powers(optimizer, moment), bool(optimizer.amsgrad)]


def _betas(optimizer: Any) -> list[Any]:
    return [optimizer.beta_1, optimizer.beta_2, optimizer.epsilon]


def _powers(optimizer: Any, moment: Moment) -> list[tf.Tensor]:
    # Keras computes powers in the variable's dtype. In float32, 1 - 0.999^t is visibly rounded.
    return [power(beta, moment.step, moment.dtype) for beta in (optimizer.beta_1, optimizer.beta_2)]


def _rmsprop(optimizer: Any, _: Moment) -> list[Any]:
    centered = bool(optimizer.centered)
    return [optimizer.rho, optimizer.momentum, optimizer.epsilon, centered, 0.0]


def nadam_u(optimizer: Any, step: Any, dtype: tf.DType) -> tf.Tensor:
    """Returns u_step, Nadam's momentum at a step."""
    return tf.cast(optimizer.beta_1, dtype) * (1.0 - 0.5 * power(0.96, step, dtype))


def _nadam(optimizer: Any, moment: Moment) -> list[Any]:
    return [
        *_betas(optimizer),
        _powers(optimizer, moment)[1],
        nadam_u(optimizer, moment.step, moment.dtype),
        nadam_u(optimizer, moment.step + 1, moment.dtype),
        moment.u_product,
    ]


def _ftrl(optimizer: Any, _: Moment) -> list[Any]:
    return [
        optimizer.learning_rate_power,
        optimizer.l1_regularization_strength,
        optimizer.l2_regularization_strength,
        optimizer.l2_shrinkage_regularization_strength,
        optimizer.beta,
        optimizer.initial_accumulator_value,
    ]


def _adagrad(optimizer: Any, _: Moment) -> list[Any]:
    return [optimizer.epsilon, optimizer.initial_accumulator_value]


#: The rules by the name of the class in `keras.optimizers` and `tf_keras.optimizers`.
RULES = {
    "SGD": Rule(lambda optimizer: "momentum" if optimizer.momentum else "sgd", _sgd),
    "Adagrad": Rule(lambda _: "adagrad", _adagrad),
    "Adadelta": Rule(lambda _: "adadelta", lambda optimizer, _: [optimizer.rho, optimizer.epsilon]),
    "RMSprop": Rule(lambda _: "rmsprop", _rmsprop),
    "Adam": Rule(lambda _: "adam", _adam),
    "AdamW": Rule(lambda _: "adam", _adam),
    "Adamax": Rule(
        lambda _: "adamax",
        lambda optimizer, moment: [*_betas(optimizer), _powers(optimizer, moment)[0]],
    ),
    "Nadam": Rule(lambda _: "nadam", _nadam),
    "Ftrl": Rule(lambda _: "ftrl", _ftrl),
    "Lion": Rule(lambda _: "lion", lambda optimizer, _: [optimizer.beta_1, optimizer.beta_2]),
    "Lamb": Rule(
        lambda _: "lamb",
        lambda optimizer, moment: [*_betas(optimizer), *_powers(optimizer, moment)],
    ),
    "RowwiseAdagrad": Rule(lambda _: "rowwise_adagrad", _adagrad),
}


def rule_of(optimizer: Any, *namespaces: Any) -> Rule | None:
    """Returns the native rule of an optimizer, or None if it has none.

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
