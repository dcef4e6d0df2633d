"""Which Keras optimizers run inside the tables, and with which hyperparameters.

A rule is the `update_step` of a class of `keras.optimizers` (or of `tf_keras.optimizers`, whose
formulae are the same), done by the engine for the touched rows only.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf

from de_core.optimizers.plan import power


class Moment(NamedTuple):
    """What of an optimizer's state a rule needs to know.

    Attributes:
        step: The number of this update, counted from 1.
        learning_rate: Of this step.
        u_product: Nadam's u_1 * … * u_step, else None.
        dtype: That rows are computed in.
    """

    step: tf.Tensor
    learning_rate: Any
    u_product: Any
    dtype: tf.DType


class Rule(NamedTuple):
    """One native update rule.

    Attributes:
        name: The engine's name for it, given an optimizer.
        settings: The hyperparameters after the learning rate.
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
    # In the rows' dtype, as Keras takes them: in float32 1 - 0.999^t differs from the real number.
    return [power(beta, moment.step, moment.dtype) for beta in (optimizer.beta_1, optimizer.beta_2)]


def _rmsprop(optimizer: Any, _: Moment) -> list[Any]:
    centered = bool(optimizer.centered)
    return [optimizer.rho, optimizer.momentum, optimizer.epsilon, centered, 0.0]


def nadam_u(optimizer: Any, step: Any, dtype: tf.DType) -> tf.Tensor:
    """Returns Nadam's momentum of a step."""
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


#: By the name of the class in `keras.optimizers` and `tf_keras.optimizers`.
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

    A subclass has the rule of its base as long as it does not change the formula.

    Args:
        optimizer: Of Keras 3 or tf_keras.
        *namespaces: Where the classes lie, such as `keras.optimizers`.
    """
    for name, rule in RULES.items():
        for namespace in namespaces:
            known = getattr(namespace, name, None)
            if known is not None and type(optimizer).update_step is known.update_step:
                return rule
    return None
