"""Names of `tfra.dynamic_embedding` that are aliases here, or do nothing."""

from __future__ import annotations

import types
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import tensorflow as tf

from de_core.base.removed_names import missing
from de_core.tfra import keras_layers
from de_core.variable.anchor import table_of
from de_core.variable.graph import graph_mode

_V = TypeVar("_V")


class _Names(types.SimpleNamespace):
    """Stands for a module of `tfra`. The error for a removed name tells its replacement."""

    def __init__(self, module: str, removed: dict[str, str], **names: Any) -> None:
        super().__init__(_module=module, _removed=removed, **names)

    def __getattr__(self, name: str) -> Any:
        raise missing(f"module {vars(self).get('_module')!r}", name, vars(self).get("_removed", {}))


class GraphKeys:
    """Keys of graph collections.

    The collections hold anchors: variables that represent tables in TensorFlow's collections. They
    can be used in `var_list` and in a MetaGraph.

    Attributes:
        DYNAMIC_EMBEDDING_VARIABLES: The anchors of all Variables.
        TRAINABLE_DYNAMIC_EMBEDDING_VARIABLES: The anchors of the trainable Variables.

    Example:
    >>> import tensorflow as tf, de_core as de
    >>> with tf.Graph().as_default():
    ...     users = de.get_variable("users")
    ...     anchors = tf.compat.v1.get_collection(de.GraphKeys.DYNAMIC_EMBEDDING_VARIABLES)
    >>> [anchor.name for anchor in anchors]
    ['users/anchor:0']
    """

    DYNAMIC_EMBEDDING_VARIABLES = graph_mode.DYNAMIC_EMBEDDING_VARIABLES
    TRAINABLE_DYNAMIC_EMBEDDING_VARIABLES = graph_mode.TRAINABLE_DYNAMIC_EMBEDDING_VARIABLES


class ModelMode:
    """The process's mode. It is stored but has no effect.

    In both modes, a lookup is a pure, thread-safe read. Exports do not depend on the mode.

    Attributes:
        TRAIN: The default mode.
        INFERENCE: The other mode.
        CURRENT_SETTING: The mode that was enabled last.
    """

    TRAIN = "train"
    INFERENCE = "inference"
    CURRENT_SETTING = TRAIN


def get_model_mode() -> str:
    """Returns the mode that was enabled last: "train" or "inference".

    Example:
    >>> get_model_mode()
    'train'
    """
    return ModelMode.CURRENT_SETTING


def enable_train_mode() -> None:
    """Makes `get_model_mode` return "train". Has no other effect."""
    ModelMode.CURRENT_SETTING = ModelMode.TRAIN


def enable_inference_mode() -> None:
    """Makes `get_model_mode` return "inference". Has no other effect."""
    ModelMode.CURRENT_SETTING = ModelMode.INFERENCE


def register_all(custom_kernels: bool = True) -> None:
    """Does nothing, because importing `de_core` registers all ops, gradients and Keras classes.

    Args:
        custom_kernels: Ignored.
    """
    del custom_kernels


def patch_on_tf() -> None:
    """Does nothing, because TensorFlow needs no patch.

    Wrap optimizers in `DynamicEmbeddingOptimizer`.
    """


def patch_on_tf_save_restore() -> None:
    """Does nothing, because TensorFlow's checkpoints and Savers include the tables."""


def trainable_wrapper_filter(
    iterable_object_in: Iterable[_V],
    test_unaggregated_function: Callable[[_V], bool] | None = None,
) -> tuple[tuple[_V, ...], tuple[_V, ...]]:
    """Separates dense variables from variables that represent dynamic tables.

    Args:
        iterable_object_in: Variables, in any order.
        test_unaggregated_function: Returns True for a variable that represents a table. None
            selects anchors and `TrainableWrapper`s of dynamic Variables.

    Returns:
        The dense variables and the others, each in the order of the input.

    Example:
    >>> import tensorflow as tf, de_core as de
    >>> users, dense = de.Variable(dim=2), tf.Variable(1.0)
    >>> others, tables = trainable_wrapper_filter([dense, *users.trainable_variables])
    >>> len(others), len(tables)
    (1, 1)
    """
    test = test_unaggregated_function or (lambda variable: table_of(variable) is not None)
    dense: list[_V] = []
    tables: list[_V] = []
    for variable in iterable_object_in:
        (tables if test(variable) else dense).append(variable)
    return tuple(dense), tuple(tables)


def _dynamic_stitch(
    indices: Sequence[Any], data: Sequence[Any], use_fast: bool = True, name: str | None = None
) -> tf.Tensor:
    """Returns `tf.dynamic_stitch(indices, data)`. Ignores `use_fast`."""
    del use_fast
    return tf.dynamic_stitch(list(indices), list(data), name=name)


def _sparse_segment_sum(
    data: Any, indices: Any, segment_ids: Any, name: str | None = None, num_segments: Any = None
) -> tf.Tensor:
    """Returns `tf.sparse.segment_sum`, with TensorFlow 1's order of arguments."""
    return tf.sparse.segment_sum(data, indices, segment_ids, num_segments=num_segments, name=name)


data_flow = _Names(
    "de_core.data_flow", {}, dynamic_partition=tf.dynamic_partition, dynamic_stitch=_dynamic_stitch
)
math = _Names(
    "de_core.math",
    {},
    sparse_fill_empty_rows=tf.sparse.fill_empty_rows,
    sparse_reshape=tf.sparse.reshape,
    sparse_segment_sum=_sparse_segment_sum,
)
keras = _Names(
    "de_core.keras",
    {
        "callbacks": "keras.callbacks.ModelCheckpoint includes the tables",
        "models": "model.save, model.export and de.export include the tables",
    },
    layers=keras_layers,
)
train = _Names(
    "de_core.train",
    {
        "checkpoint": "use de.train.DECheckpoint",
        "saver": "tf.compat.v1.train.Saver includes the tables",
        "DEHvdSaver": "Horovod is not used; tf.compat.v1.train.Saver includes the tables",
    },
    Checkpoint=tf.train.Checkpoint,
    DECheckpoint=tf.train.Checkpoint,
)
