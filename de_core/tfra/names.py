"""Names of `tfra.dynamic_embedding` that do nothing here, are TensorFlow's own, or are missing."""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import tensorflow as tf

from de_core.base.checks import received
from de_core.base.keras import LEGACY, keras
from de_core.base.removed_names import PACKAGE, missing
from de_core.optimizers import wrap
from de_core.storage.creator import KVCreator
from de_core.variable.anchor import table_of
from de_core.variable.graph import graph_mode

_V = TypeVar("_V")


class GraphKeys:
    """Keys of the graph collections of all anchors, and of trainable Variables' anchors.

    An anchor represents a table in collections, in `var_list` and in a MetaGraph.

    Example:
    >>> from de_core import tfra
    >>> de = tfra.dynamic_embedding
    >>> with tf.Graph().as_default():
    ...     users = de.get_variable("users")
    ...     anchors = tf.compat.v1.get_collection(de.GraphKeys.DYNAMIC_EMBEDDING_VARIABLES)
    >>> [anchor.name for anchor in anchors]
    ['users/anchor:0']
    """

    DYNAMIC_EMBEDDING_VARIABLES = graph_mode.DYNAMIC_EMBEDDING_VARIABLES
    TRAINABLE_DYNAMIC_EMBEDDING_VARIABLES = graph_mode.TRAINABLE_DYNAMIC_EMBEDDING_VARIABLES


class ModelMode:
    """The process's mode. It has no effect: a lookup is a pure read in both modes."""

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


def register_all(keras_objects: bool = True, custom_kernels: bool = True) -> None:
    """Does nothing, because importing `de_core` registers all ops, gradients and Keras classes.

    Args:
        keras_objects: Ignored.
        custom_kernels: Ignored.
    """
    del keras_objects, custom_kernels


def patch_on_tf() -> None:
    """Does nothing, because TensorFlow needs no patch.

    Wrap optimizers in `DynamicEmbeddingOptimizer`.
    """


def patch_on_tf_save_restore() -> None:
    """Does nothing, because TensorFlow's checkpoints and Savers include the tables."""


class CuckooHashTableConfig:
    """Has no settings: a table grows as it fills, and `init_size` reserves memory."""

    def __init__(self) -> None:
        """Makes the configuration."""


@keras.saving.register_keras_serializable(package="de_core.keras")
class CuckooHashTableCreator(KVCreator):
    """Selects the table in main memory, which is also the default."""

    in_memory = True

    def get_config(self) -> dict[str, Any]:
        """Returns an empty dict: the constructor's arguments have no effect."""
        return {}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> CuckooHashTableCreator:
        """Makes a creator from the result of `get_config`."""
        return cls(**config)


class FileSystemSaver:
    """Selects files beside the checkpoint for the rows, which is also the default.

    Args:
        proc_size: Ignored, because each process saves its own rows.
        proc_rank: Ignored.
        save_path: Must be None, because the files are beside the checkpoint.
        buffer_size: Ignored.

    Raises:
        ValueError: `save_path` is not None.
    """

    def __init__(
        self,
        proc_size: int | None = None,
        proc_rank: int | None = None,
        save_path: str | None = None,
        buffer_size: int = 4096,
    ) -> None:
        del proc_size, proc_rank, buffer_size
        if save_path is not None:
            raise ValueError(
                "`save_path` must be None, because a checkpoint's rows lie beside it. "
                + received(save_path=save_path)
                + " To write them elsewhere, call Variable.save_to_file_system."
            )


def DynamicEmbeddingOptimizer(  # noqa: N802  the name that the reference API gives it
    self: Any, bp_v2: bool = False, synchronous: bool = False, **kwargs: Any
) -> Any:
    """Returns an optimizer like the given one that also trains tables.

    See `de.DynamicEmbeddingOptimizer`. `bp_v2=True` adds differences to the rows instead of writing
    them. `synchronous` must be False.
    """
    return wrap.DynamicEmbeddingOptimizer(self, bp_v2, synchronous=synchronous, **kwargs)


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
    >>> import de_core as de
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


def dynamic_stitch(
    indices: Sequence[Any], data: Sequence[Any], use_fast: bool = True, name: str | None = None
) -> tf.Tensor:
    """Returns `tf.dynamic_stitch(indices, data)`. Ignores `use_fast`."""
    del use_fast
    return tf.dynamic_stitch(list(indices), list(data), name=name)


def save_model(
    model: Any,
    filepath: str,
    overwrite: bool = True,
    include_optimizer: bool = True,
    signatures: Any = None,
    options: Any = None,
    save_traces: bool = True,
    *args: Any,
    **kwargs: Any,
) -> None:
    """Saves a model with its tables as a SavedModel.

    It takes the arguments of `save_model` of tf_keras. With Keras 3, `include_optimizer` and
    `save_traces` have no effect: the optimizer's dense state is left out.

    Raises:
        FileExistsError: `filepath` exists and `overwrite` is False.
    """
    del args, kwargs
    if not overwrite and tf.io.gfile.exists(filepath):
        raise FileExistsError(
            f"`filepath` must not exist with overwrite=False. {received(filepath=filepath)} Remove "
            "it, or pass another one."
        )
    if LEGACY:
        keras.models.save_model(
            model,
            filepath,
            save_format="tf",
            include_optimizer=include_optimizer,
            signatures=signatures,
            options=options,
            save_traces=save_traces,
        )
    else:
        tf.saved_model.save(model, filepath, signatures=signatures, options=options)


class Absent(type):
    """The class of names that have no counterpart here. Any use of such a name raises."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        """Raises NotImplementedError with the remedy."""
        del args, kwargs
        raise NotImplementedError(
            f"{cls.__name__} must not be used: it has no counterpart in de_core. Received: a call "
            f"of {cls.__name__}. Instead: {cls.__doc__}."
        )

    def __getattr__(cls, name: str) -> Any:
        """Raises AttributeError with the remedy."""
        raise missing(cls.__name__, name, {name: str(cls.__doc__)})


@functools.cache
def absent(name: str, remedy: str) -> Absent:
    """Returns the stand-in for a name without a counterpart: a class without instances."""
    return Absent(name, (), {"__doc__": remedy})


class Namespace(types.ModuleType):
    """A module of `tfra`.

    In `names`, a dict becomes a module, and a text becomes the stand-in for a name without a
    counterpart. The text is the remedy. The error for a missing name tells its replacement.
    """

    def __init__(self, name: str, names: Mapping[str, Any]) -> None:
        super().__init__(name)
        self.__path__: list[str] = []  # so that Python imports submodules of it
        for key, value in names.items():
            if isinstance(value, dict):
                value = Namespace(f"{name}.{key}", value)
            setattr(self, key, absent(key, value) if isinstance(value, str) else value)

    def __getattr__(self, name: str) -> Any:
        """Raises AttributeError for a name that is not there."""
        raise missing(f"module {self.__name__!r}", name, PACKAGE)


HOROVOD = (
    "Horovod is not used; train under a tf.distribute strategy, or put the shards of a Variable on "
    "several machines by `devices`"
)
#: Names of `dynamic_embedding` without a counterpart.
ABSENT = {
    name: PACKAGE[name]
    for name in (
        *("CuckooHashTable", "DEResourceVariable", "DistributedVariableWrapper"),
        *("HkvEvictStrategy", "HkvHashTable", "HkvHashTableConfig", "HkvHashTableCreator"),
        *("RedisTable", "create_slots"),
    )
}
_HERE = "tensorflow_recommenders_addons.dynamic_embedding"
data_flow = Namespace(
    f"{_HERE}.data_flow",
    {"dynamic_partition": tf.dynamic_partition, "dynamic_stitch": dynamic_stitch},
)
math = Namespace(
    f"{_HERE}.math",
    {
        "sparse_fill_empty_rows": tf.compat.v1.sparse_fill_empty_rows,
        "sparse_reshape": tf.compat.v1.sparse_reshape,
        "sparse_segment_sum": tf.compat.v1.sparse_segment_sum,
    },
)
train = Namespace(
    f"{_HERE}.train",
    {
        **dict.fromkeys(("Checkpoint", "DECheckpoint"), tf.train.Checkpoint),
        "DEHvdSaver": f"tf.compat.v1.train.Saver saves the tables. {HOROVOD}",
    },
)
#: Names of `dynamic_embedding.keras.callbacks` and of `dynamic_embedding.keras.models`.
CALLBACKS = {
    "ModelCheckpoint": keras.callbacks.ModelCheckpoint,
    "DEHvdBroadcastGlobalVariablesCallback": HOROVOD,
    "DEHvdBroadcastGlobalVariablesCallbackImpl": HOROVOD,
    "DEHvdModelCheckpoint": f"use keras.callbacks.ModelCheckpoint. {HOROVOD}",
}
MODELS = dict.fromkeys(("save_model", "de_save_model", "de_hvd_save_model"), save_model)
