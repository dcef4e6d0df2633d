"""Types of the arguments and results that many functions share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, Protocol, SupportsIndex, TypeAlias

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from de_core.base.keras import keras


class HasArray(Protocol):
    """An object that numpy reads: a tensor, an array or a numpy scalar. Strings are not."""

    def __array__(self) -> np.ndarray[Any, Any]:
        """Returns the values."""


#: A dtype, or its name.
DTypeLike: TypeAlias = tf.DType | np.dtype[Any] | type | str
#: Values that `tf.convert_to_tensor` converts.
TensorLike: TypeAlias = tf.Tensor | tf.Variable | npt.ArrayLike
#: Ids as a dense, ragged or sparse tensor.
Ids: TypeAlias = tf.Tensor | tf.RaggedTensor | tf.SparseTensor
#: Rows of dense or ragged ids.
Rows: TypeAlias = tf.Tensor | tf.RaggedTensor
#: A whole number, also as a tensor or array without dimensions.
WholeNumber: TypeAlias = SupportsIndex | HasArray
#: One id.
Id: TypeAlias = WholeNumber | str | bytes
#: The initial rows of a table, see `de.Variable`.
InitializerLike: TypeAlias = TensorLike | Callable[..., TensorLike] | Mapping[str, Any] | None
#: The result of an exported lookup for an id without a row, see `de.export`.
UnknownIds: TypeAlias = (
    Literal["initial", "zeros", "error"] | bytes | float | HasArray | Sequence[float]
)
#: Something that holds Variables: a module, layer or model, a checkpoint, or a group of these.
Target: TypeAlias = (
    tf.Module | keras.layers.Layer | tf.train.Checkpoint | Sequence[Any] | Mapping[str, Any]
)
#: A model that is exported.
Model: TypeAlias = keras.Model | tf.Module
#: The functions that a SavedModel serves: one, or several by name.
Signatures: TypeAlias = Callable[..., Any] | Mapping[str, Callable[..., Any]] | None
#: The inputs of a model.
InputSpecs: TypeAlias = tf.TypeSpec | Sequence[tf.TypeSpec] | Mapping[str, tf.TypeSpec] | None
#: One request to a signature: its inputs by name.
Request: TypeAlias = Mapping[str, TensorLike]
#: An optimizer of Keras or of TensorFlow 1.
Optimizer: TypeAlias = keras.optimizers.Optimizer | tf.compat.v1.train.Optimizer
#: A gradient. In a step it is None for a variable that the loss does not depend on.
Gradient: TypeAlias = tf.Tensor | tf.IndexedSlices
#: A variable as optimizers take it.
TrainedVariable: TypeAlias = "tf.Variable | keras.Variable"  # tf_keras has no such class
#: A number, also as a tensor or variable.
Scalar: TypeAlias = float | tf.Tensor | tf.Variable
#: A shape whose first dimension may be unknown.
ShapeLike: TypeAlias = tf.TensorShape | Sequence[int | None]
#: A Keras regularizer, its name or its configuration.
RegularizerLike: TypeAlias = Callable[[tf.Tensor], tf.Tensor] | str | Mapping[str, Any] | None
#: A gradient, or None, and its variable.
GradientPair: TypeAlias = tuple[Gradient | None, TrainedVariable]
