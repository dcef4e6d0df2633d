"""Looks up the ids of many features, and pools the rows of each example."""

from __future__ import annotations

import dataclasses

import tensorflow as tf

from de_core.base.types import Id, Ids, Rows
from de_core.lookup.lookup_many import embedding_lookup_many
from de_core.lookup.pooling import Combiner, pooled, pooled_rows
from de_core.lookup.segments import Segments, by_last_dimension, kind_of
from de_core.tables import keys_and_values
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


def lookup_features(features: list[Feature]) -> list[Rows]:
    """Returns the rows of each feature. Gradients flow to rows and weights.

    Args:
        features: The features. Their ids are tensors, and several may share a `Variable`.

    Returns:
        For each feature, rows of the value dtype. With a combiner, ids.shape[:-1] + [dim]; zeros
        for an example without ids. For a sequence ids.shape[:-1] + [max_length, dim], filled with
        zeros; without `max_length` ids.shape + [dim], ragged for ragged ids. Ids of rank 1 have
        one row each.
    """
    parts = [_Part.of(feature) for feature in features]
    remote = [part for part in parts if part.feature.variable._table.is_remote]
    found = embedding_lookup_many(
        [part.feature.variable for part in remote], [part.segments.ids for part in remote]
    )
    rows_of = {id(part): rows for part, rows in zip(remote, found, strict=True)}
    return [part.shaped(part.pooled(rows_of.get(id(part)))) for part in parts]


@dataclasses.dataclass(frozen=True)
class _Part:
    """The segments of a feature. Each makes one row: of an example, or of a place in a sequence."""

    feature: Feature
    segments: Segments

    @classmethod
    def of(cls, feature: Feature) -> _Part:
        table = feature.variable._table
        ids, weights, length = feature.ids, feature.weights, feature.max_length
        key_dtype = table.spec.key_dtype
        ids = ids if ids.dtype == key_dtype else tf.cast(ids, key_dtype)
        keys_and_values.note_kind(kind_of(ids), table)
        if not isinstance(ids, (tf.RaggedTensor, tf.SparseTensor)):
            if ids.shape.rank == 1:
                ids = ids[:, None]
                weights = None if weights is None else weights[:, None]
            elif length is not None:
                ids = ids[..., :length]
                weights = None if weights is None else weights[..., :length]
        if feature.combiner is None:
            return cls(feature, _without_padding(_places(ids, length), feature))
        segments = by_last_dimension(ids, weights)
        if length is not None and isinstance(ids, (tf.RaggedTensor, tf.SparseTensor)):
            segments = segments.where(_numbers(segments) < length)
        return cls(feature, _without_padding(segments, feature))

    def pooled(self, rows: tf.Tensor | None) -> tf.Tensor:
        """Returns the row of each segment, [segments, dim].

        Args:
            rows: The rows of the ids, [n, dim], or None to look them up.
        """
        variable, segments = self.feature.variable, self.segments
        combiner = self.feature.combiner or "sum"
        if rows is not None:
            return pooled(rows, segments.row_splits, segments.weights, combiner)
        return pooled_rows(
            variable,
            segments.ids,
            segments.row_splits,
            weights=segments.weights,
            combiner=combiner,
        )

    def shaped(self, rows: tf.Tensor) -> Rows:
        """Returns the rows of the segments in the feature's shape."""
        feature = self.feature
        ids, dim, length = feature.ids, feature.variable.dim, feature.max_length
        shape = feature.output_shape
        if isinstance(ids, (tf.RaggedTensor, tf.SparseTensor)):
            if feature.combiner is None and isinstance(ids, tf.RaggedTensor) and length is None:
                return ids.with_values(rows)
            return tf.ensure_shape(tf.reshape(rows, [-1, *shape.as_list()[1:]]), shape)
        sizes = tf.shape(ids) if ids.shape.rank == 1 else tf.shape(ids)[:-1]
        if feature.combiner is None and ids.shape.rank != 1:
            sizes = tf.concat([sizes, [tf.shape(ids)[-1] if length is None else length]], 0)
        return tf.ensure_shape(tf.reshape(rows, tf.concat([sizes, [dim]], 0)), shape)


def _without_padding(segments: Segments, feature: Feature) -> Segments:
    if feature.mask_key is None:
        return segments
    padding = tf.cast(feature.mask_key, segments.ids.dtype)
    return segments.where(tf.not_equal(segments.ids, padding))


def _numbers(segments: Segments) -> tf.Tensor:
    """Returns the number of each id in its segment, int64 [n]."""
    first = tf.gather(segments.row_splits, segments.of_ids())
    return tf.range(tf.size(segments.ids, tf.int64)) - first


def _places(ids: Ids, length: int | None) -> Segments:
    """Returns segments of one place in a sequence each. A place without an id is empty."""
    if isinstance(ids, tf.RaggedTensor) and length is None:
        return Segments(ids.values, tf.range(tf.size(ids.values, tf.int64) + 1))
    if isinstance(ids, (tf.RaggedTensor, tf.SparseTensor)):
        segments = by_last_dimension(ids)
        numbers = _numbers(segments)
        places = segments.of_ids() * length + numbers
        return segments.regrouped(tf.where(numbers < length, places, -1), segments.count() * length)
    count = tf.size(ids, tf.int64)
    segments = Segments(tf.reshape(ids, [-1]), tf.range(count + 1))
    if length is None:
        return segments
    width = tf.shape(ids, tf.int64)[-1]
    places = tf.range(count)
    places = places // tf.maximum(width, 1) * length + places % tf.maximum(width, 1)
    return segments.regrouped(places, tf.reduce_prod(tf.shape(ids, tf.int64)[:-1]) * length)
