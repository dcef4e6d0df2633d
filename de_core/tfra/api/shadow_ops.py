"""Shadow variables of `tfra`. They are not needed here, because every lookup can be trained."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from de_core.base.checks import received
from de_core.base.removed_names import PACKAGE, missing
from de_core.base.types import Rows, TensorLike
from de_core.tfra.api.wrappers import TrainableWrapper
from de_core.tfra.names import HOROVOD, absent
from de_core.variable.variable import Variable


class ShadowVariable(TrainableWrapper, tf.Module):
    """Represents a `Variable` in lookups, in `tape.gradient` and in lists of trainable variables.

    A `tf.Module`, a layer of tf_keras or a `tf.train.Checkpoint` that holds the shadow trains and
    saves the Variable. A layer of Keras 3 must also hold the Variable, because it follows only
    layers and variables.

    Args:
        params: The `Variable`.
        name: The name in `params.trainable_store`. The shadow itself has the name of `params`.
        max_norm: Lookups scale longer rows down to this norm; None for no limit.
        trainable: Must equal the `trainable` of `params`.
        distribute_strategy: Ignored.
        **kwargs: Ignored.

    Raises:
        ValueError: `trainable` differs from `params.trainable`.

    Example:
    >>> from de_core import tfra
    >>> de = tfra.dynamic_embedding
    >>> shadow = de.shadow_ops.ShadowVariable(de.Variable(dim=2, initializer=1.0))
    >>> with tf.GradientTape() as tape:
    ...     loss = tf.reduce_sum(de.shadow_ops.embedding_lookup(shadow, [3, 4]))
    >>> tape.gradient(loss, shadow).indices.numpy().tolist()
    [3, 4]
    """

    # A module finds the variables of `params` alone. Ids may be a variable too.
    _TF_MODULE_IGNORED_PROPERTIES = tf.Module._TF_MODULE_IGNORED_PROPERTIES | {"ids", "_anchor"}

    def __init__(
        self,
        params: Variable,
        name: str = "ShadowVariable",
        max_norm: float | None = None,
        trainable: bool = True,
        distribute_strategy: object = None,
        **kwargs: Any,
    ) -> None:
        del distribute_strategy, kwargs
        super().__init__(params, [], max_norm, name=name)
        if bool(trainable) != self.trainable:
            raise ValueError(
                "`trainable` must be that of the Variable, which is fixed when the Variable is "
                f"created. {received(trainable=trainable, params=params)}"
            )

    def _trackable_children(self, *_: Any, **__: Any) -> dict[str, Any]:
        """Returns what TensorFlow saves: the Variable."""
        return {"params": self.params}

    def embedding_lookup(
        self,
        ids: TensorLike | tf.RaggedTensor,
        name: str | None = None,
        max_norm: float | None = None,
    ) -> tuple[Rows, ShadowVariable]:
        """Returns the rows of `ids`, ids.shape + [dim], and this shadow variable."""
        norm = self.max_norm if max_norm is None else max_norm
        self.ids = ids
        with tf.name_scope(name or "shadow_embedding_lookup"):
            return self.params._lookup_scaled(ids, norm), self


def embedding_lookup(
    shadow: ShadowVariable,
    ids: TensorLike | tf.RaggedTensor,
    partition_strategy: str | None = None,
    name: str | None = None,
    validate_indices: bool | None = None,
) -> Rows:
    """Returns the rows of `ids`, ids.shape + [dim]; see `de_core.embedding_lookup`.

    `partition_strategy` and `validate_indices` have no effect.
    """
    del partition_strategy, validate_indices
    return shadow.embedding_lookup(ids, name=name)[0]


def embedding_lookup_unique(
    shadow: ShadowVariable,
    ids: TensorLike | tf.RaggedTensor,
    embedding_size: int,
    with_unique: bool = True,
    name: str | None = None,
) -> Rows:
    """Returns the same as `embedding_lookup`, with or without `with_unique`.

    Raises:
        ValueError: `embedding_size` is not the Variable's dim.
    """
    del with_unique
    if embedding_size != shadow.params.dim:
        raise ValueError(
            f"`embedding_size` must be the dim of the Variable, {shadow.params.dim}. "
            + received(embedding_size=embedding_size)
        )
    return embedding_lookup(shadow, ids, name=name)


def __getattr__(name: str) -> Any:
    """Returns a stand-in for a name without a counterpart. Its first use raises the remedy."""
    if name in _ABSENT:
        return absent(name, _ABSENT[name])
    raise missing(f"module {__name__!r}", name, {})


_ABSENT = {
    "DEResourceVariable": PACKAGE["DEResourceVariable"],
    "EmbeddingWeights": "pass a Variable or a wrapper of a Variable",
    "HvdVariable": HOROVOD,
    "embedding_lookup_unique_base": "use embedding_lookup_unique",
}
