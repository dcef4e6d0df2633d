"""Which Keras optimizers run inside the tables, and with which hyperparameters.

A rule is Keras's `update_step`, done by the engine for the touched rows only. The formulae are
those of `keras/src/optimizers/*.py`; a row without a gradient is left alone, where Keras's dense
step would also let its momentum or moments decay.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from de_core.config import received


class Rule(NamedTuple):
    """One native update rule.

    Attributes:
        optimizer: The Keras class whose `update_step` it is.
        name: The engine's name for it, given an optimizer.
        settings: The hyperparameters after the learning rate, given an optimizer and the number of
            this step, counted from 1.
    """

    optimizer: type[Any]
    name: Callable[[Any], str]
    settings: Callable[[Any, tf.Tensor], list[Any]]


def _adam(optimizer: Any, step: tf.Tensor) -> list[Any]:
    beta_1 = tf.convert_to_tensor(optimizer.beta_1, tf.float64)
    beta_2 = tf.convert_to_tensor(optimizer.beta_2, tf.float64)
    powers = [tf.pow(beta_1, step), tf.pow(beta_2, step)]
    return [beta_1, beta_2, optimizer.epsilon, *powers, float(optimizer.amsgrad)]


RULES = (
    Rule(
        keras.optimizers.SGD,
        lambda optimizer: "momentum" if optimizer.momentum else "sgd",
        lambda optimizer, _: (
            [optimizer.momentum, float(optimizer.nesterov)] if optimizer.momentum else []
        ),
    ),
    Rule(
        keras.optimizers.Adagrad,
        lambda _: "adagrad",
        lambda optimizer, _: [optimizer.epsilon, optimizer.initial_accumulator_value],
    ),
    Rule(keras.optimizers.Adam, lambda _: "adam", _adam),
)


def rule_of(optimizer: Any) -> Rule:
    """Returns the native rule of a Keras optimizer.

    Raises:
        ValueError: It has none, or a setting that the tables do not support.
    """
    for rule in RULES:
        # A subclass counts as long as it did not change the formula.
        if getattr(type(optimizer), "update_step", None) is rule.optimizer.update_step:
            _check_settings(optimizer)
            return rule
    names = ", ".join(rule.optimizer.__name__ for rule in RULES)
    raise ValueError(
        f"The optimizer of a dynamic table must be one of {names}. {received(optimizer=optimizer)}"
    )


def hyperparameters(rule: Rule, optimizer: Any, learning_rate: Any) -> tf.Tensor:
    """Returns what the engine's rule takes for the step that is about to be counted, double [k].

    Args:
        rule: Of `rule_of`.
        optimizer: Its `iterations` count the steps before this one.
        learning_rate: Of this step.
    """
    step = tf.cast(tf.convert_to_tensor(optimizer.iterations) + 1, tf.float64)
    values = [learning_rate, *rule.settings(optimizer, step)]
    return tf.stack([tf.cast(tf.convert_to_tensor(value), tf.float64) for value in values])


def _check_settings(optimizer: Any) -> None:
    for setting in ("weight_decay", "use_ema", "gradient_accumulation_steps"):
        value = getattr(optimizer, setting, None)
        if value:
            raise ValueError(
                f"`{setting}` is not supported for dynamic tables yet: leave it out, or train the "
                f"tables with an optimizer of their own. {received(**{setting: value})}"
            )
