"""The settings of the engine's update rules, as typed tuples.

They have the fields of the structs of the same names in `cc/engine/optimizer/rule_settings.h`.
Flags are bools. `beta1_power` is beta1 to the power of the step, counted from 1.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple, Protocol, TypeAlias

import tensorflow as tf


def as_scalar(value: Any, dtype: tf.DType) -> tf.Tensor:
    """Returns a number as a tensor. `tf.cast` would round a Python number to float32 first."""
    if isinstance(value, (bool, int, float)):
        return tf.constant(float(value), dtype)
    return tf.cast(value, dtype)


class Power(NamedTuple):
    """A number to the power of the step, computed in the dtype of the rows.

    Rounding matters: 1 - 0.999^step in float32 differs from the same formula in float64.

    Attributes:
        base: The number.
        step: The number of the step, counted from 1, an int64 scalar.
    """

    base: float | tf.Tensor
    step: tf.Tensor

    def value(self, dtype: tf.DType) -> tf.Tensor:
        """Returns the power, computed in `dtype`."""
        return tf.pow(as_scalar(self.base, dtype), tf.cast(self.step, dtype))


#: A Python number, a scalar tensor or variable, or a power.
Number: TypeAlias = float | tf.Tensor | Power


class Settings(Protocol):
    """The settings of any rule, in the engine's order."""

    @property
    def lr(self) -> Number:
        """The learning rate."""

    def __iter__(self) -> Iterator[Number]:
        """Yields the numbers."""


class SgdSettings(NamedTuple):
    """Settings of `sgd`."""

    lr: Number


class MomentumSettings(NamedTuple):
    """Settings of `momentum` and `tf1_momentum`."""

    lr: Number
    momentum: Number
    nesterov: Number


class LionSettings(NamedTuple):
    """Settings of `lion`."""

    lr: Number
    beta1: Number
    beta2: Number


class AdagradSettings(NamedTuple):
    """Settings of `adagrad`, `adagrad_v2` and `rowwise_adagrad`."""

    lr: Number
    eps: Number
    initial_accumulator: Number


class AdadeltaSettings(NamedTuple):
    """Settings of `adadelta`."""

    lr: Number
    rho: Number
    eps: Number


class RmspropSettings(NamedTuple):
    """Settings of `rmsprop`."""

    lr: Number
    rho: Number
    momentum: Number
    eps: Number
    centered: Number
    initial_rms: Number


class RmspropV2Settings(NamedTuple):
    """Settings of `rmsprop_v2`."""

    lr: Number
    rho: Number
    eps: Number
    centered: Number
    initial_rms: Number


class AdamSettings(NamedTuple):
    """Settings of `adam`."""

    lr: Number
    beta1: Number
    beta2: Number
    eps: Number
    beta1_power: Number
    beta2_power: Number
    amsgrad: Number


class AdamaxSettings(NamedTuple):
    """Settings of `adamax`."""

    lr: Number
    beta1: Number
    beta2: Number
    eps: Number
    beta1_power: Number


class NadamSettings(NamedTuple):
    """Settings of `nadam`. `u_product` is the product of the `u` of all steps up to this one."""

    lr: Number
    beta1: Number
    beta2: Number
    eps: Number
    beta2_power: Number
    u: Number
    next_u: Number
    u_product: Number


class LambSettings(NamedTuple):
    """Settings of `lamb` and `rowwise_adam`."""

    lr: Number
    beta1: Number
    beta2: Number
    eps: Number
    beta1_power: Number
    beta2_power: Number


class ProximalSgdSettings(NamedTuple):
    """Settings of `proximal_sgd`."""

    lr: Number
    l1: Number
    l2: Number


class ProximalAdagradSettings(NamedTuple):
    """Settings of `proximal_adagrad`."""

    lr: Number
    l1: Number
    l2: Number
    initial_accumulator: Number


class AdagradDaSettings(NamedTuple):
    """Settings of `adagrad_da`."""

    lr: Number
    l1: Number
    l2: Number
    initial_accumulator: Number
    step: Number


class FtrlSettings(NamedTuple):
    """Settings of `ftrl`."""

    lr: Number
    lr_power: Number
    l1: Number
    l2: Number
    l2_shrinkage: Number
    beta: Number
    initial_accumulator: Number
