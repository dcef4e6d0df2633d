"""The ids of a feature in one call, and the shape of its rows."""

from __future__ import annotations

import dataclasses

import tensorflow as tf

from de_core.base.types import Id, Ids
from de_core.lookup.pooling import Combiner
from de_core.variable.variable import Variable


@dataclasses.dataclass(frozen=True)
class Feature:
    """The ids of one feature, and how to pool their rows.

    Attributes:
        variable: The `Variable` that holds the rows.
        ids: Ids of the key dtype, or int32 for int64 keys. A dense tensor of rank 1 (an id per
            example) or more, or a ragged or sparse tensor [examples, ids].
        weights: The weight of each id, a tensor of the same kind and shape; None for 1.
        combiner: One of `COMBINERS`, or None for a row for each id.
        max_length: Look up only the first ids of an example; None for all.
        mask_key: The id that means padding, or None.
    """

    variable: Variable
    ids: Ids
    weights: Ids | None = None
    combiner: Combiner | None = "mean"
    max_length: int | None = None
    mask_key: Id | None = None

    @property
    def output_shape(self) -> tf.TensorShape:
        """The static shape of the rows."""
        return shape_of_rows(
            self.ids.shape, self.variable.dim, self.combiner is None, self.max_length
        )


def shape_of_rows(
    ids: tf.TensorShape | tuple[int | None, ...],
    dim: int,
    is_sequence: bool,
    max_length: int | None,
) -> tf.TensorShape:
    """Returns the shape of a feature's rows.

    Args:
        ids: The shape of the ids; its rank is known.
        dim: Values per row.
        is_sequence: True for a row for each id.
        max_length: The length of a sequence; None for that of the ids.
    """
    shape = tf.TensorShape(ids)
    if shape.rank == 1:
        return shape.concatenate([dim])
    if not is_sequence:
        return shape[:-1].concatenate([dim])
    length = shape[-1] if max_length is None else max_length
    return shape[:-1].concatenate([length, dim])
