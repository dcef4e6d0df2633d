"""The door to the optimizers of tables: one function for every family of optimizers."""

from __future__ import annotations

import warnings
from typing import Any

import tensorflow as tf

from de_core.base.checks import received
from de_core.base.keras import global_policy, keras
from de_core.optimizers.tf1.optimizer import Tf1Optimizer


def DynamicEmbeddingOptimizer(  # noqa: N802  the name that the reference API gives it
    opt: Any,
    bp_v2: bool = False,
    synchronous: bool = False,
    reject_nonfinite: bool = False,
    name: str | None = None,
) -> Any:
    """Returns an optimizer like `opt` that also trains dynamic tables.

    What it returns is a proper optimizer of the same family, with the settings of `opt`, which it
    holds; nothing is patched. Gradients of ordinary variables go to `opt`. Those of tables are
    applied inside the table by the same formula, in one pass: equal ids are summed, each touched
    row and its slots are updated once, a new id starts from its initial row. Rows without a
    gradient in a step are left as they are, under every optimizer.

    Families: Keras 3 (`keras.optimizers`), tf_keras where it is installed, its legacy optimizers
    too, and `tf.compat.v1.train`. Inside the tables run SGD with momentum and nesterov, Adagrad,
    Adadelta, RMSprop, Adam, AdamW, Adamax, Nadam, Ftrl, Lion, Lamb,
    `de.optimizers.RowwiseAdagrad`, and of TensorFlow 1 also AdagradDA, ProximalGradientDescent and
    ProximalAdagrad. Any other optimizer, also a user's own, works on gathered rows by its formula
    for dense gradients, and warns once that this is slower.

    Under the policy "mixed_float16", and around a `keras.optimizers.LossScaleOptimizer`, it returns
    a `de.LossScaleOptimizer`, which scales the loss dynamically.

    Args:
        opt: The optimizer, or for Keras its name or configuration.
        bp_v2: Whether an optimizer that works on gathered rows adds differences to them, so that
            nothing is lost where several threads train one table. Updates inside the table are
            atomic and add up in any case.
        synchronous: Must be False: under `tf.distribute`'s mirrored strategies, which several
            replicas or workers train in step by, the optimizer sees to that itself.
        reject_nonfinite: Whether a step whose gradient holds a NaN or an infinity is refused with
            an error before anything is changed, and counted in `rejected_steps`.
        name: Of the optimizer.

    Raises:
        TypeError: `opt` is no optimizer of a known family, or wrapped already.
        NotImplementedError: `synchronous` is True, or `opt` has no formula for dense gradients.

    Example:
    >>> import keras
    >>> import de_core as de
    >>> model = keras.Sequential([de.layers.Embedding(4), keras.layers.Dense(1)])
    >>> model.compile(de.DynamicEmbeddingOptimizer(keras.optimizers.Adam(0.01)), "mse")
    >>> history = model.fit(tf.constant([1, 2, 3], tf.int64), tf.zeros([3, 1]), verbose=0)
    >>> int(model.layers[0].table.size())
    3
    """
    if synchronous:
        raise NotImplementedError(
            "`synchronous` must be False: make tables and optimizer in the scope of a "
            "tf.distribute.MultiWorkerMirroredStrategy, and they train in step by themselves. "
            + received(synchronous=synchronous)
        )
    if isinstance(opt, (str, dict)):
        opt = keras.optimizers.get(opt)
    if hasattr(opt, "slots_owner"):
        raise TypeError(f"`opt` must be an optimizer that is not wrapped yet. {received(opt=opt)}")
    options: dict[str, Any] = {"bp_v2": bp_v2, "reject_nonfinite": reject_nonfinite, "name": name}
    families = {base.__module__.partition(".")[0] for base in type(opt).__mro__}
    if "tf_keras" in families:
        return _of_tf_keras(opt, options)
    if "keras" in families:
        return _of_keras(opt, options)
    if isinstance(opt, tf.compat.v1.train.Optimizer):
        methods = ("compute_gradients", "apply_gradients", "minimize")
        _warn_of_what_is_passed_by(opt, tf.compat.v1.train.Optimizer, *methods)
        return Tf1Optimizer(opt, **options)
    raise TypeError(
        "`opt` must be an optimizer of Keras 3, of tf_keras, or of tf.compat.v1.train. "
        + received(opt=opt)
    )


def _of_keras(opt: Any, options: dict[str, Any]) -> Any:
    import keras as keras_3

    from de_core.optimizers.keras3.loss_scale import LossScaleOptimizer
    from de_core.optimizers.keras3.optimizer import KerasOptimizer

    base = keras_3.optimizers.Optimizer
    if not isinstance(opt, base):
        raise TypeError(f"`opt` must be a Keras optimizer. {received(opt=opt)}")
    if isinstance(opt, getattr(keras_3.optimizers, "MultiOptimizer", ())):
        raise TypeError(
            "`opt` must be one optimizer. " + received(opt=opt) + " Wrap each optimizer of a "
            "MultiOptimizer: keras.optimizers.MultiOptimizer(keras.optimizers.OptimizerMap("
            "de.DynamicEmbeddingOptimizer(first), "
            "{'users/anchor': de.DynamicEmbeddingOptimizer(second)}))."
        )
    if isinstance(opt, keras_3.optimizers.LossScaleOptimizer):
        wrapped = KerasOptimizer(opt.inner_optimizer, **options)
        return LossScaleOptimizer(wrapped, opt.initial_scale, opt.dynamic_growth_steps)
    _warn_of_what_is_passed_by(opt, base, "apply", "apply_gradients")
    wrapped = KerasOptimizer(opt, **options)
    if global_policy().name == "mixed_float16" and opt.loss_scale_factor is None:
        # Model.compile would do it, around this one.
        return LossScaleOptimizer(wrapped)
    return wrapped


def _of_tf_keras(opt: Any, options: dict[str, Any]) -> Any:
    import tf_keras

    from de_core.optimizers.keras2.optimizer import Keras2LegacyOptimizer, Keras2Optimizer

    loss_scale = tf_keras.mixed_precision.LossScaleOptimizer
    if isinstance(opt, loss_scale):
        # Which takes slices as they are.
        return loss_scale(
            _of_tf_keras(opt.inner_optimizer, options),
            dynamic=opt.dynamic,
            initial_scale=opt.initial_scale if opt.dynamic else float(opt.loss_scale),
            dynamic_growth_steps=opt.dynamic_growth_steps,
        )
    legacy = tf_keras.optimizers.legacy.Optimizer
    if isinstance(opt, legacy):
        _warn_of_what_is_passed_by(opt, legacy, "apply_gradients")
        return Keras2LegacyOptimizer(opt, **options)
    _warn_of_what_is_passed_by(opt, tf_keras.optimizers.Optimizer, "apply_gradients")
    return Keras2Optimizer(opt, **options)


def _warn_of_what_is_passed_by(opt: Any, base: type, *methods: str) -> None:
    changed = [each for each in methods if getattr(type(opt), each) is not getattr(base, each)]
    if changed:
        warnings.warn(
            f"{type(opt).__name__} has its own {', '.join(changed)}, which gets the gradients of "
            "ordinary variables alone: what it does to them it does not do to those of tables.",
            stacklevel=4,
        )
