"""`TrainableWrapper`: represents the rows of one lookup where TensorFlow expects a variable."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import tensorflow as tf

from de_core.base import removed_names
from de_core.base.types import TensorLike
from de_core.tables.sharded import ShardedTable
from de_core.variable.anchor import table_of, tensor_variable
from de_core.variable.variable import Variable


class TrainableWrapper:
    """Stands for a table in `tape.gradient` and in lists of variables to train.

    All wrappers of a `Variable`, and the anchor in its `trainable_variables`, are equivalent: the
    gradient with respect to any of them is the gradient of all lookups of the Variable. If an
    optimizer gets several of them, it applies the gradient once. If the Variable is not trainable,
    the gradient is None.

    Args:
        params: The `Variable` that was looked up.
        ids: The ids that were looked up.
        max_norm: The `max_norm` of the lookup.

    Example:
    >>> import de_core as de
    >>> items = de.Variable(dim=2, name="items", initializer=1.0)
    >>> with tf.GradientTape() as tape:
    ...     rows, wrapper = de.embedding_lookup(items, [3, 5], return_trainable=True)
    ...     loss = tf.reduce_sum(rows)
    >>> tape.gradient(loss, wrapper).indices.numpy().tolist()
    [3, 5]
    """

    overwrite_with_gradient = True
    # With this attribute, TensorFlow's tapes identify the object by its `handle`.
    _should_act_as_resource_variable = True

    def __init__(
        self, params: Variable, ids: TensorLike | tf.RaggedTensor, max_norm: float | None = None
    ) -> None:
        self.params = params
        self.ids = ids
        self.max_norm = max_norm
        anchor = next(iter(params.trainable_variables), None)
        self.trainable = anchor is not None
        if anchor is not None:
            self._anchor: Any = tensor_variable(anchor)
        else:
            with tf.init_scope():
                self._anchor = tf.Variable(tf.zeros([0]), trainable=False, name="not_trainable")

    @property
    def name(self) -> str:
        """The name of the Variable."""
        return self.params.name

    @property
    def handle(self) -> tf.Tensor:
        """The anchor's handle. A tape identifies the table by this handle."""
        return self._anchor.handle

    @property
    def dtype(self) -> tf.DType:
        """Dtype of the rows."""
        return self.params.value_dtype

    @property
    def shape(self) -> tf.TensorShape:
        """Shape of the rows that were looked up, ids.shape + [dim]."""
        ids = self.ids if isinstance(self.ids, tf.RaggedTensor) else tf.convert_to_tensor(self.ids)
        return ids.shape.concatenate([self.params.dim])

    @property
    def _de_table(self) -> ShardedTable | None:
        return table_of(self._anchor)

    @property
    def _unique_id(self) -> str:
        return str(self._anchor._unique_id)

    def read_value(self) -> tf.Tensor | tf.RaggedTensor:
        """Looks up the ids again and returns their current rows, ids.shape + [dim]."""
        return self.params._lookup_scaled(self.ids, self.max_norm)

    prefetch_values = value = read_value

    def update_op(self) -> tf.Operation | None:
        """Returns a no-op, or None in eager mode: an optimizer step writes the rows by itself."""
        return None if tf.executing_eagerly() else tf.no_op()

    def size(self) -> tf.Tensor:
        """Returns the number of rows in the table, an int64 scalar."""
        return self.params.size()

    if not TYPE_CHECKING:  # otherwise type checkers would accept every attribute name

        def __getattr__(self, name: str) -> Any:
            """Raises AttributeError. Its message says what replaces a name of the reference API."""
            raise removed_names.missing(
                f"{type(self).__name__!r} object", name, removed_names.TRAINABLE_WRAPPER
            )

    def __repr__(self) -> str:
        return f"<de.TrainableWrapper of {self.params!r}>"
