"""Divides dense, sparse or ragged ids into segments. A pooled lookup makes one row per segment."""

from __future__ import annotations

import dataclasses
from typing import Any

import tensorflow as tf

from de_core.base.ops import library
from de_core.base.types import Ids, Rows
from de_core.tables import served_copy


@dataclasses.dataclass(frozen=True)
class Segments:
    """Ids in segments.

    Attributes:
        ids: All ids, [n].
        row_splits: int64 [segments + 1]; segment i is ids[row_splits[i]:row_splits[i + 1]].
        weights: Weight of each id, [n], or None.
    """

    ids: tf.Tensor
    row_splits: tf.Tensor
    weights: tf.Tensor | None = None

    def count(self) -> tf.Tensor:
        """Returns the number of segments, an int64 scalar."""
        return tf.size(self.row_splits, tf.int64) - 1

    def of_ids(self) -> tf.Tensor:
        """Returns the segment number of each id, int64 [n]."""
        return segment_ids(self.row_splits)

    def where(self, kept: tf.Tensor) -> Segments:
        """Returns the same segments without the ids where `kept`, bool [n], is False."""
        return self.regrouped(tf.where(kept, self.of_ids(), -1), self.count())

    def regrouped(self, segments: tf.Tensor, count: tf.Tensor) -> Segments:
        """Divides the same ids into `count` other segments.

        `segments`, int64 [n], is the new segment of each id. An id with a negative segment is
        dropped.
        """
        if not served_copy.stand_ins.get():
            order, splits = library.de_segment_order(segments, count)
        else:
            last = tf.where(segments < 0, count, segments)
            splits = tf.searchsorted(tf.sort(last), tf.range(count + 1), out_type=tf.int64)
            order = tf.argsort(last, stable=True)[: splits[-1]]
        weights = None if self.weights is None else tf.gather(self.weights, order)
        return Segments(tf.gather(self.ids, order), splits, weights)


def segment_ids(row_splits: tf.Tensor) -> tf.Tensor:
    """Returns the segment number of each element, int64 [n], from `row_splits`."""
    places = tf.range(row_splits[-1])
    return tf.RaggedTensor.from_row_splits(places, row_splits, validate=False).value_rowids()


def by_first_dimension(ids: Ids, weights: Rows | tf.SparseTensor | None = None) -> Segments:
    """Makes segment i from all ids in ids[i, ...].

    Sparse ids must be in row-major order. The weights are of the kind and shape of the ids.
    """
    return _divided(ids, weights, by_first=True)


def by_last_dimension(ids: Ids, weights: Rows | tf.SparseTensor | None = None) -> Segments:
    """Makes one segment from each innermost row, ids[..., :]."""
    return _divided(ids, weights, by_first=False)


def _divided(ids: Ids, weights: Rows | tf.SparseTensor | None, by_first: bool) -> Segments:
    if isinstance(ids, tf.RaggedTensor):
        ids, weights = _all_ragged(ids), _all_ragged(weights)
        splits = ids.nested_row_splits[-1]
        for each in reversed(ids.nested_row_splits[:-1] if by_first else ()):
            splits = tf.gather(splits, each)
        return Segments(ids.flat_values, tf.cast(splits, tf.int64), _flat(weights))
    if isinstance(ids, tf.SparseTensor):
        shape = ids.dense_shape
        outer = ids if by_first else tf.sparse.reshape(ids, [tf.reduce_prod(shape[:-1]), shape[-1]])
        splits = _row_splits(outer.indices[:, 0], outer.dense_shape[0])
        return Segments(ids.values, splits, _flat(weights))
    shape = tf.shape(ids, tf.int64)
    segments = tf.reduce_prod(shape[:1] if by_first else shape[:-1])
    width = tf.size(ids, tf.int64) // tf.maximum(segments, 1)
    return Segments(flat_values(ids), tf.range(segments + 1) * width, _flat(weights))


def with_outer_dimensions(ids: Ids, rows: tf.Tensor, dim: int) -> Rows:
    """Reshapes pooled rows of the segments of `by_last_dimension` to ids.shape[:-1] + [dim].

    Returns:
        A dense tensor, or a `tf.RaggedTensor` for ragged ids of rank 3 or more.
    """
    if isinstance(ids, tf.RaggedTensor):
        ids = _all_ragged(ids)
        outer = ids.nested_row_splits[:-1]
        if outer:
            return tf.RaggedTensor.from_nested_row_splits(rows, outer, validate=False)
        return tf.ensure_shape(rows, [ids.shape[0], dim])
    sparse = isinstance(ids, tf.SparseTensor)
    shape = ids.dense_shape[:-1] if sparse else tf.shape(ids, tf.int64)[:-1]
    static = None if ids.shape.rank is None else [*ids.shape[:-1], dim]
    return tf.ensure_shape(tf.reshape(rows, tf.concat([shape, [dim]], 0)), static)


def kind_of(ids: Any) -> str:
    """Returns "ragged", "sparse" or "dense" for a tensor or a Keras symbolic tensor."""
    for kind, tensor_class in (("ragged", tf.RaggedTensor), ("sparse", tf.SparseTensor)):
        if isinstance(ids, tensor_class) or getattr(ids, kind, False):
            return kind
    return "dense"


def flat_values(ids: Ids) -> tf.Tensor:
    """Returns the ids of a dense, sparse or ragged tensor, [n]."""
    if isinstance(ids, tf.SparseTensor):
        return ids.values
    return tf.reshape(ids.flat_values if isinstance(ids, tf.RaggedTensor) else ids, [-1])


def _row_splits(segments: tf.Tensor, count: tf.Tensor) -> tf.Tensor:
    """Returns the row splits, int64 [count + 1], of ascending segment numbers [n]."""
    if not served_copy.stand_ins.get():
        return library.de_segment_order(segments, count, sorted=True).row_splits
    ascend = tf.reduce_all(segments[1:] >= segments[:-1])
    fit = tf.reduce_all((segments >= 0) & (segments < count))
    message = "the rows of sparse ids must ascend from 0 to the first dimension. Received: rows="
    with tf.control_dependencies([tf.Assert(ascend & fit, [message, segments])]):
        return tf.searchsorted(segments, tf.range(count + 1), out_type=tf.int64)


def _flat(weights: Rows | tf.SparseTensor | None) -> tf.Tensor | None:
    return None if weights is None else flat_values(weights)


def _all_ragged(ragged: tf.RaggedTensor) -> tf.RaggedTensor:
    """Converts the dense inner dimensions of a ragged tensor to ragged dimensions."""
    if ragged is None or ragged.flat_values.shape.rank in (None, 1):
        return ragged
    values = ragged.flat_values
    inner = tf.RaggedTensor.from_tensor(
        values, ragged_rank=values.shape.rank - 1, row_splits_dtype=ragged.row_splits.dtype
    )
    return ragged.with_flat_values(inner)
