"""Looks up the ids of many features, and pools the rows of each example."""

from __future__ import annotations

import tensorflow as tf

from de_core.base.types import Rows
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
    parts = [_segments_of(feature) for feature in features]
    remote = [n for n, feature in enumerate(features) if feature.variable._table.is_remote]
    found = embedding_lookup_many(
        [features[number].variable for number in remote], [parts[number].ids for number in remote]
    )
    rows_of = dict(zip(remote, found, strict=True))
    results = []
    for number, (feature, segments) in enumerate(zip(features, parts, strict=True)):
        combiner = feature.combiner or "sum"
        if number in rows_of:
            rows = pooled(rows_of[number], segments.row_splits, segments.weights, combiner)
        else:
            rows = pooled_rows(feature.variable, segments, combiner=combiner)
        results.append(_shaped(rows, feature))
    return results


def _segments_of(feature: Feature) -> Segments:
    """Returns a feature's segments: one for each example, or for each place in a sequence."""
    variable, ids, weights = feature.variable, feature.ids, feature.weights
    ids = ids if ids.dtype == variable.key_dtype else tf.cast(ids, variable.key_dtype)
    keys_and_values.note_kind(kind_of(ids), variable._table)
    length = feature.max_length
    if ids.shape.rank == 1:  # one id per example
        length, ids = None, ids[:, None]
        weights = None if weights is None else weights[:, None]
    is_dense = kind_of(ids) == "dense"  # a tf.Variable too
    if is_dense and length is not None:  # cheaper than to regroup
        ids = ids[..., :length]
        weights = None if weights is None else weights[..., :length]
    segments = by_last_dimension(ids, weights)
    if feature.combiner is None:
        segments = _places(segments, length)
    elif length is not None and not is_dense:
        segments = segments.where(_numbers(segments) < length)
    if feature.mask_key is not None:
        padding = tf.cast(feature.mask_key, segments.ids.dtype)
        segments = segments.where(tf.not_equal(segments.ids, padding))
    return segments


def _shaped(rows: tf.Tensor, feature: Feature) -> Rows:
    """Returns the rows of the segments, [segments, dim], in the feature's shape."""
    ids, shape = feature.ids, feature.output_shape
    is_dense = kind_of(ids) == "dense"  # a tf.Variable too
    is_unbounded = feature.combiner is None and feature.max_length is None
    if is_unbounded and not is_dense:
        return ids.with_values(rows)
    # The result has the sizes of dense ids where the shape is unknown.
    sizes = [
        size if size is not None else tf.shape(ids)[place] if is_dense else -1
        for place, size in enumerate(shape.as_list())
    ]
    return tf.ensure_shape(tf.reshape(rows, sizes), shape)


def _numbers(segments: Segments) -> tf.Tensor:
    """Returns the number of each id in its segment, int64 [n]."""
    first = tf.gather(segments.row_splits, segments.of_ids())
    return tf.range(tf.size(segments.ids, tf.int64)) - first


def _places(segments: Segments, length: int | None) -> Segments:
    """Returns segments of one place in a sequence each. A place without an id is empty."""
    if length is None:
        return Segments(segments.ids, tf.range(tf.size(segments.ids, tf.int64) + 1))
    numbers = _numbers(segments)
    places = tf.where(numbers < length, segments.of_ids() * length + numbers, -1)
    return segments.regrouped(places, segments.count() * length)
