"""Looks up the ids of many features, and pools the rows of each example."""

from __future__ import annotations

import dataclasses

import tensorflow as tf

from de_core.base.types import Ids, Rows
from de_core.lookup.feature import Feature, lookup_at_once
from de_core.lookup.lookup import embedding_lookup_many
from de_core.lookup.pooling import pooled, pooled_rows
from de_core.lookup.segments import Segments, by_last_dimension, kind_of
from de_core.tables import keys_and_values


def lookup_features(features: list[Feature]) -> list[Rows]:
    """Returns the rows of each feature. Gradients flow to rows and weights.

    One op looks up all features whose tables are on one device, in one shard in memory each. For
    tables in other processes, features share requests; see `embedding_lookup_many`.

    Returns:
        For each feature, rows of the value dtype. With a combiner, ids.shape[:-1] + [dim]; zeros
        for an example without ids. For a sequence ids.shape[:-1] + [max_length, dim], filled with
        zeros; without `max_length` ids.shape + [dim], ragged for ragged ids. Ids of rank 1 have
        one row each.
    """
    rows: dict[int, Rows] = {}
    for device, numbers in _groups(features).items():
        chosen = [features[number] for number in numbers]
        looked_up = _one_by_one(chosen) if device is None else lookup_at_once(chosen, device)
        rows.update(zip(numbers, looked_up, strict=True))
    return [rows[number] for number in range(len(features))]


def lookup_joined(features: list[Feature]) -> tf.Tensor:
    """Returns the rows of all features side by side, [examples, sum of dims]."""
    groups = _groups(features)
    (device,) = groups if len(groups) == 1 else (None,)
    dtypes = {feature.variable.value_dtype for feature in features}
    ranks = {feature.output_shape.rank for feature in features}
    if device is not None and len(dtypes) == 1 and ranks == {2}:
        return lookup_at_once(features, device, joined=True)[0]
    return tf.concat(lookup_features(features), -1)


def _groups(features: list[Feature]) -> dict[str | None, list[int]]:
    """Returns the numbers of the features by the device whose op looks them up; None for no op."""
    groups: dict[str | None, list[int]] = {}
    for number, feature in enumerate(features):
        table = feature.variable._table
        has_op = table.is_one and table.tables[0].pools and table.spec.value_dtype.is_floating
        groups.setdefault(table.spec.devices[0] if has_op else None, []).append(number)
    return groups


def _one_by_one(features: list[Feature]) -> list[Rows]:
    """Looks up features whose tables are in several shards, in other processes or in storages."""
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

        Looks the ids up if `rows` is None.
        """
        variable, segments = self.feature.variable, self.segments
        combiner = self.feature.combiner or "sum"
        if rows is not None:
            return pooled(rows, segments.row_splits, segments.weights, combiner)
        return pooled_rows(variable, segments, combiner=combiner)

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
