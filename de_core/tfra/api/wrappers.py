"""`TrainableWrapper` with the arguments and the arithmetic of `tfra`."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from de_core.base.types import Rows, TensorLike
from de_core.variable import trainable_wrapper

_OPERATORS = (
    *("__add__", "__radd__", "__sub__", "__rsub__", "__mul__", "__rmul__", "__truediv__"),
    *("__rtruediv__", "__pow__", "__rpow__", "__matmul__", "__neg__", "__abs__", "__getitem__"),
)


class _Itself(tf.types.experimental.TraceType):
    """The type of one object as an argument of a `tf.function`."""

    __eq__ = object.__eq__
    __hash__ = object.__hash__

    def __init__(self, wrapper: TrainableWrapper) -> None:
        self._wrapper = weakref.ref(wrapper)

    def is_subtype_of(self, other: object) -> bool:
        return self is other

    def most_specific_common_supertype(self, others: Sequence[object]) -> _Itself | None:
        return self if all(self is each for each in others) else None

    def placeholder_value(self, *_: Any) -> Any:
        return self._wrapper()


class TrainableWrapper(trainable_wrapper.TrainableWrapper):
    """Stands for the rows of one lookup. It can be used like a tensor of these rows.

    Args:
        params: The `Variable` that was looked up.
        ids: The ids that were looked up.
        max_norm: The `max_norm` of the lookup.
        *args: Ignored.
        **kwargs: `name`: the wrapper's name in `params.trainable_store`. Others are ignored.

    Example:
    >>> from de_core import tfra
    >>> de = tfra.dynamic_embedding
    >>> items = de.Variable(dim=2, name="wrapped_items", initializer=3.0)
    >>> with tf.GradientTape() as tape:
    ...     rows, wrapper = de.embedding_lookup(items, [3, 5], return_trainable=True)
    ...     loss = tf.nn.l2_loss(wrapper)
    >>> tape.gradient(loss, wrapper).values.numpy().tolist()
    [[3.0, 3.0], [3.0, 3.0]]
    """

    def __init__(
        self, params: Any, ids: Any, max_norm: float | None, *args: Any, **kwargs: Any
    ) -> None:
        del args
        super().__init__(params, ids, max_norm)
        self._type = _Itself(self)
        if kwargs.get("name") and hasattr(params, "trainable_store"):
            params.trainable_store[kwargs["name"]] = self

    def __tf_tracing_type__(self, context: Any) -> _Itself:
        """Lets a `tf.function` take the wrapper itself as an argument, and not its rows."""
        return self._type

    def read_value(self, do_prefetch: bool = True) -> Rows:
        """Looks up the ids again and returns their rows, ids.shape + [dim]."""
        del do_prefetch
        return super().read_value()

    def value(self, do_prefetch: bool = False) -> Rows:
        """Returns the same as `read_value`."""
        return self.read_value(do_prefetch)

    def prefetch_values(self, update: bool = False) -> Rows:
        """Returns the same as `read_value`."""
        return self.read_value(update)

    def update_op(self, v0: Any = None) -> tf.Operation | None:
        """Returns a no-op, or None in eager mode: an optimizer step writes the rows by itself."""
        del v0
        return super().update_op()

    def transform(self, result: Rows) -> Rows:
        """Scales rows down to the lookup's `max_norm`."""
        return result if self.max_norm is None else tf.clip_by_norm(result, self.max_norm, [-1])

    def assign(
        self, value: TensorLike, use_locking: Any = None, name: Any = None, read_value: bool = True
    ) -> Any:
        """Writes the rows of the ids that were looked up last.

        A Keras 3 optimizer that is not wrapped calls this method with a gradient.

        Args:
            value: Rows, ids.shape + [dim].
            use_locking: Ignored.
            name: Name of the operation.
            read_value: Whether to return the rows.

        Raises:
            RuntimeError: `value` is a gradient.
        """
        del use_locking
        if isinstance(value, tf.IndexedSlices):
            raise RuntimeError(
                "The optimizer of a table must be wrapped. Received: a gradient of table "
                f"{self.params.name!r}. Use DynamicEmbeddingOptimizer(optimizer)."
            )
        done = self.params.upsert(self.ids, value, name=name)
        with tf.control_dependencies([] if done is None else [done]):
            return tf.identity(value) if read_value else done

    def numpy(self) -> np.ndarray[Any, Any]:
        """Returns the rows as an array."""
        rows: np.ndarray[Any, Any] = self.read_value().numpy()
        return rows

    def get_shape(self) -> tf.TensorShape:
        """Returns the shape of the rows."""
        return self.shape

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        """Returns the rows as an array."""
        del copy
        return np.asarray(self.numpy(), dtype)

    def __tf_tensor__(self, dtype: tf.DType | None = None, name: str | None = None) -> Rows:
        """Returns the rows as a tensor, for TensorFlow's functions."""
        del name
        rows = self.read_value()
        if dtype is not None and dtype != rows.dtype:
            raise ValueError(
                f"A wrapper's rows must be used as {rows.dtype.name}. Received: "
                f"dtype={dtype.name}. Convert them by tf.cast(wrapper, tf.{dtype.name})."
            )
        return rows


def _operator(name: str) -> Any:
    def apply(self: TrainableWrapper, *others: Any) -> Any:
        return getattr(self.read_value(), name)(*map(_rows_of, others))

    return apply


def _rows_of(value: Any) -> Any:
    return value.read_value() if isinstance(value, TrainableWrapper) else value


for _name in _OPERATORS:
    setattr(TrainableWrapper, _name, _operator(_name))
