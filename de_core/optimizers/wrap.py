"""`DynamicEmbeddingOptimizer`: the entry point to the optimizers of tables, for every family."""

from __future__ import annotations

import warnings
from typing import Any

import tensorflow as tf

from de_core.base.checks import received
from de_core.base.keras import global_policy, keras
from de_core.base.private_names import VARIABLES_WITHOUT_DECAY
from de_core.base.types import Optimizer
from de_core.optimizers.tf1.optimizer import Tf1Optimizer


def DynamicEmbeddingOptimizer(  # noqa: N802  the name that the reference API gives it
    opt: Optimizer | str | dict[str, Any],
    bp_v2: bool = False,
    synchronous: bool = False,
    reject_nonfinite: bool = False,
    name: str | None = None,
) -> Optimizer:
    """Returns an optimizer like `opt` that also trains dynamic tables.

    The result is an optimizer of the same family as `opt`. It wraps `opt`, uses its settings, and
    patches nothing. `opt` itself updates ordinary variables. A table's gradient is applied inside
    the table by the same formula, in one pass: the table sums the gradients of equal ids, then
    updates each touched row and its slots once. A new id starts from its initial row. Under every
    optimizer, a step changes only rows that have a gradient.

    Families: Keras 3 (`keras.optimizers`), tf_keras with its legacy optimizers if it is installed,
    and `tf.compat.v1.train`. These optimizers run inside the tables: SGD with momentum and
    nesterov, Adagrad, Adadelta, RMSprop, Adam, AdamW, Adamax, Nadam, Ftrl, Lion, Lamb,
    `de.optimizers.RowwiseAdagrad` and `RowwiseAdam`, and from TensorFlow 1 also AdagradDA,
    ProximalGradientDescent and ProximalAdagrad. Any other optimizer, for example a user's own,
    works on gathered rows by its formula for dense gradients. It warns once that this is slower.

    Under the policy "mixed_float16", or if `opt` is a `keras.optimizers.LossScaleOptimizer`, the
    result is a `de.LossScaleOptimizer`, which scales the loss dynamically.

    Args:
        opt: The optimizer. For Keras also its name or configuration.
        bp_v2: True to let an optimizer on gathered rows add differences to the rows. Then no update
            is lost when several threads train one table. Updates inside the table are always
            atomic and add up.
        synchronous: Must be False. Under `tf.distribute`'s mirrored strategies, replicas and
            workers train synchronously without it.
        reject_nonfinite: True to refuse a step whose gradients hold a NaN or an infinity. The step
            raises an error, changes nothing, and is counted in `rejected_steps`.
        name: Name of the optimizer.

    Raises:
        TypeError: `opt` is not an optimizer of a known family, or it is already wrapped.
        ValueError: `opt` excludes variables from weight decay. These might be tables.
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
            f"`synchronous` must be False. {received(synchronous=synchronous)} To train in step, "
            "make tables and optimizer in the scope of a tf.distribute.MultiWorkerMirroredStrategy."
        )
    if isinstance(opt, (str, dict)):
        opt = keras.optimizers.get(opt)
    if hasattr(opt, "slots_owner"):
        raise TypeError(f"`opt` must be an optimizer that is not wrapped yet. {received(opt=opt)}")
    if getattr(getattr(opt, "inner_optimizer", opt), VARIABLES_WITHOUT_DECAY, None):
        raise ValueError(
            "`opt` must exclude variables from weight decay only after it is wrapped, because it "
            f"does not recognize tables. {received(opt=opt)} Call `exclude_from_weight_decay` on "
            "the result of de.DynamicEmbeddingOptimizer, or pass only `var_names`."
        )
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
        # Return a LossScaleOptimizer. Model.compile would wrap any other result in Keras's own
        # LossScaleOptimizer.
        made = LossScaleOptimizer(wrapped)
        made.is_of_policy = True
        return made
    return wrapped


def _of_tf_keras(opt: Any, options: dict[str, Any]) -> Any:
    import tf_keras

    from de_core.optimizers.keras2.optimizer import Keras2LegacyOptimizer, Keras2Optimizer

    loss_scale = tf_keras.mixed_precision.LossScaleOptimizer
    if isinstance(opt, loss_scale):
        # tf_keras's LossScaleOptimizer keeps sparse gradients sparse.
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
            f"{type(opt).__name__} has its own {', '.join(changed)}, which gets only the gradients "
            "of ordinary variables. What it does to them it does not do to those of tables.",
            stacklevel=4,
        )
