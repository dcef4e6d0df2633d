"""The update rules of the engine, and the optimizers that run as a rule inside the tables.

A rule is the engine's version of an optimizer's formula, run on the touched rows only. Optimizers
of Keras 3 and new ones of tf_keras have the same formulas. Legacy ones of tf_keras and the
optimizers of TensorFlow 1 call TensorFlow's training ops; some add epsilon outside the square root.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import tensorflow as tf

from de_core.base.checks import received
from de_core.base.private_names import PRODUCTS_OF_NADAM, UPDATES_OF_NADAM
from de_core.base.types import Scalar

#: The settings of each rule, in the order of `cc/engine/optimizer/rule_settings.h`. Flags are
#: bools. `beta1_power` is beta1 to the power of the step, counted from 1.
SETTINGS: dict[str, tuple[str, ...]] = {
    name: tuple(settings.split())
    for name, settings in {
        "sgd": "lr",
        "momentum": "lr momentum nesterov",
        "tf1_momentum": "lr momentum nesterov",
        "lion": "lr beta1 beta2",
        "adagrad": "lr eps initial_accumulator",
        "adagrad_v2": "lr eps initial_accumulator",
        "rowwise_adagrad": "lr eps initial_accumulator",
        "adadelta": "lr rho eps",
        "rmsprop": "lr rho momentum eps centered initial_rms",
        "rmsprop_v2": "lr rho eps centered initial_rms",
        "adam": "lr beta1 beta2 eps beta1_power beta2_power amsgrad",
        "adamax": "lr beta1 beta2 eps beta1_power",
        "nadam": "lr beta1 beta2 eps beta2_power u next_u u_product",
        "lamb": "lr beta1 beta2 eps beta1_power beta2_power",
        "rowwise_adam": "lr beta1 beta2 eps beta1_power beta2_power",
        "proximal_sgd": "lr l1 l2",
        "proximal_adagrad": "lr l1 l2 initial_accumulator",
        "adagrad_da": "lr l1 l2 initial_accumulator step",
        "ftrl": "lr lr_power l1 l2 l2_shrinkage beta initial_accumulator",
    }.items()
}
_FLAGS = ("nesterov", "centered", "amsgrad")


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


class Plan(NamedTuple):
    """How one step of an optimizer updates its tables.

    Attributes:
        optimizer: The optimizer, whose attributes are the settings of the rule.
        lr: The learning rate of this step. None to read it from the optimizer.
        decay: Decoupled weight decay, or None.
        average_momentum: The momentum of the rows' moving average, or None for no average.
        rule: The rule; None if the engine has none.
        name: The engine's name of the rule; empty if there is none.
        step: The number of this step, counted from 1. None if the rule does not use it.
        u_product: For Nadam, u_1 * … * u_step; otherwise None.
    """

    optimizer: Any
    lr: Any = None
    decay: Scalar | None = None
    average_momentum: Scalar | None = None
    rule: Rule | None = None
    name: str = ""
    step: Any = None
    u_product: Any = None


@dataclasses.dataclass(frozen=True)  # Keras would wrap a tuple, and its dict
class Rule:
    """How an optimizer runs as an update rule of the engine.

    Attributes:
        names: The rule's name in the engine, or a function of the optimizer that returns it.
        sources: For each setting the optimizer's attribute that has it, or the constant value.
    """

    names: str | Callable[[Any], str]
    sources: Mapping[str, str | float]

    def name(self, optimizer: Any) -> str:
        """Returns the rule's name in the engine."""
        return self.names if isinstance(self.names, str) else self.names(optimizer)

    def settings(self, plan: Plan, dtype: tf.DType) -> list[Number]:
        """Returns the settings of a step in the engine's order.

        The engine computes rows in `dtype`.
        """
        numbers: list[Number] = []
        for name in SETTINGS[plan.name]:
            if name in ("u", "next_u"):
                step = plan.step + 1 if name == "next_u" else plan.step
                numbers.append(nadam_u(plan.optimizer, step, dtype))
            elif getattr(plan, name, None) is not None:
                numbers.append(getattr(plan, name))
            else:
                is_power = name in ("beta1_power", "beta2_power")
                source = self.sources[name.removesuffix("_power") if is_power else name]
                value = getattr(plan.optimizer, source) if isinstance(source, str) else source
                if callable(value) and not tf.is_tensor(value):
                    value = value()
                if name in _FLAGS:
                    value = bool(value)
                numbers.append(Power(value, plan.step) if is_power else value)
        return numbers


def nadam_u(optimizer: Any, step: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
    """Returns u_step, Nadam's momentum at a step."""
    # Legacy Nadam uses its setting `decay` here.
    faded = Power(0.96, getattr(optimizer, "_initial_decay", 1.0) * tf.cast(step, dtype))
    return as_scalar(optimizer.beta_1, dtype) * (1.0 - 0.5 * faded.value(dtype))


def nadam_product(product: Any, optimizer: Any) -> Any:
    """Multiplies the variable of Nadam's momenta of all steps by the momentum of this step."""
    product = product if isinstance(product, tf.Variable) else product.value
    step = tf.convert_to_tensor(optimizer.iterations) + 1
    return product.assign(product * nadam_u(optimizer, step, product.dtype))


def count_alone(optimizer: Any) -> list[Any]:
    """Counts a step in a wrapped Nadam that has no variable to update in this step."""
    if hasattr(optimizer, UPDATES_OF_NADAM):
        setattr(optimizer, UPDATES_OF_NADAM, getattr(optimizer, UPDATES_OF_NADAM) + 1)
    products = [getattr(optimizer, each, None) for each in PRODUCTS_OF_NADAM]
    return [nadam_product(each, optimizer) for each in products if each is not None]


def _rules(sources: Mapping[str, str | float], **names: str | Callable[[Any], str]) -> Any:
    return {kind: Rule(name, sources) for kind, name in names.items()}


_KERAS: dict[str, str | float] = {
    "momentum": "momentum",
    "nesterov": "nesterov",
    "beta1": "beta_1",
    "beta2": "beta_2",
    "eps": "epsilon",
    "rho": "rho",
    "centered": "centered",
    "initial_rms": 0.0,
    "amsgrad": "amsgrad",
    "initial_accumulator": "initial_accumulator_value",
    "lr_power": "learning_rate_power",
    "l1": "l1_regularization_strength",
    "l2": "l2_regularization_strength",
    "l2_shrinkage": "l2_shrinkage_regularization_strength",
    "beta": "beta",
}
_LEGACY = {
    **_KERAS,
    "initial_accumulator": "_initial_accumulator_value",
    "l2_shrinkage": "_l2_shrinkage_regularization_strength",
}
# The optimizers of TensorFlow 1 have no public attributes for their settings.
_TF1: dict[str, str | float] = {
    "lr": "_learning_rate",
    "momentum": "_momentum",
    "nesterov": "_use_nesterov",
    "eps": 0.0,
    "rho": "_decay",
    "centered": "_centered",
    "initial_rms": 1.0,
    "amsgrad": 0.0,
    "initial_accumulator": "_initial_accumulator_value",
    "lr_power": "_learning_rate_power",
    "l1": "_l1_regularization_strength",
    "l2": "_l2_regularization_strength",
    "l2_shrinkage": "_l2_shrinkage_regularization_strength",
    "beta": "_beta",
}
_TF1_ADAM = {**_TF1, "lr": "_lr", "beta1": "_beta1", "beta2": "_beta2", "eps": "_epsilon"}

#: The rules by the name of the class in `keras.optimizers` and `tf_keras.optimizers`.
KERAS: dict[str, Rule] = _rules(
    _KERAS,
    SGD=lambda optimizer: "momentum" if optimizer.momentum else "sgd",
    Adagrad="adagrad",
    Adadelta="adadelta",
    RMSprop="rmsprop",
    Adam="adam",
    AdamW="adam",
    Adamax="adamax",
    Nadam="nadam",
    Ftrl="ftrl",
    Lion="lion",
    Lamb="lamb",
    RowwiseAdagrad="rowwise_adagrad",
    RowwiseAdam="rowwise_adam",
)
#: The rules by the name of the class in `tf_keras.optimizers.legacy`.
LEGACY: dict[str, Rule] = _rules(
    _LEGACY,
    SGD=lambda optimizer: "momentum" if optimizer._momentum else "sgd",
    Adagrad="adagrad_v2",
    Adadelta="adadelta",
    RMSprop=lambda optimizer: "rmsprop" if optimizer._momentum else "rmsprop_v2",
    Adam="adam",
    Adamax="adamax",
    Nadam="nadam",
    Ftrl="ftrl",
)
#: The rules by the name of the class in `tf.compat.v1.train`.
TF1: dict[str, Rule] = {
    **_rules(
        _TF1,
        GradientDescentOptimizer="sgd",
        MomentumOptimizer="tf1_momentum",
        AdagradOptimizer="adagrad",
        FtrlOptimizer="ftrl",
        ProximalGradientDescentOptimizer="proximal_sgd",
        ProximalAdagradOptimizer="proximal_adagrad",
    ),
    **_rules({**_TF1, "eps": "_epsilon"}, RMSPropOptimizer="rmsprop"),
    **_rules({"lr": "_lr", "rho": "_rho", "eps": "_epsilon"}, AdadeltaOptimizer="adadelta"),
    **_rules(_TF1_ADAM, AdamOptimizer="adam"),
    **_rules(
        {**_TF1, "initial_accumulator": "_initial_gradient_squared_accumulator_value"},
        AdagradDAOptimizer="adagrad_da",
    ),
}


def rule_of(
    optimizer: Any,
    rules: Mapping[str, Rule],
    namespaces: Iterable[Any],
    formula: Sequence[str],
    base: type | None = None,
    *others: str,
) -> Rule | None:
    """Returns the engine's rule for an optimizer, or None if the engine has none.

    A subclass has the rule of its base class unless it overrides a method of the formula.

    Args:
        optimizer: The optimizer.
        rules: The rules by the names of classes.
        namespaces: The modules with these classes, such as `keras.optimizers`.
        formula: The names of the methods that compute an update, first the one that gets a dense
            gradient.
        base: The class in which the formula only raises; None not to require a formula.
        *others: Further methods that may get a dense gradient.

    Raises:
        NotImplementedError: The optimizer has neither a rule nor a formula for dense gradients.
    """
    kind = type(optimizer)
    for name, rule in rules.items():
        for known in (getattr(namespace, name, None) for namespace in namespaces):
            if known and all(getattr(kind, each) is getattr(known, each) for each in formula):
                return rule
    dense = (formula[0], *others)
    if base is not None and all(getattr(kind, name) is getattr(base, name) for name in dense):
        raise NotImplementedError(
            f"An optimizer of tables must have a formula for dense gradients: define `{dense[0]}`. "
            + received(opt=optimizer)
        )
    return None
