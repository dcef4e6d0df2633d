"""Looks up the ids of many features in one call: by one op, with its gradients, or one by one."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import tensorflow as tf

from de_core.base.ops import library
from de_core.base.types import Id, Ids, Rows
from de_core.lookup.lookup import embedding_lookup_many
from de_core.lookup.pooling import Combiner, pooled, pooled_rows, pooled_sums
from de_core.lookup.segments import Segments, by_last_dimension, kind_of
from de_core.tables import keys_and_values
from de_core.tables.spec import arithmetic_dtype
from de_core.variable.gradients import anchor_slices, is_wanted
from de_core.variable.variable import Variable

#: Attributes that the op and its gradients share.
_ATTRIBUTES = (
    "table_of",
    "dims",
    "Tvalues",
    "kinds",
    "combiners",
    "lengths",
    "weighted",
    "padded",
    "padding",
    "joined",
)


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

    The rank of the ids must be known. A sequence without a `max_length` has the length of the ids.
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
        looked_up = _one_by_one(chosen) if device is None else _at_once(chosen, device)
        rows.update(zip(numbers, looked_up, strict=True))
    return [rows[number] for number in range(len(features))]


def lookup_joined(features: list[Feature], dtype: str) -> tf.Tensor:
    """Returns the rows of all features side by side in `dtype`, [examples, sum of dims]."""
    groups = _groups(features)
    (device,) = groups if len(groups) == 1 else (None,)
    dtypes = {feature.variable.value_dtype for feature in features}
    ranks = {feature.output_shape.rank for feature in features}
    if device is not None and len(dtypes) == 1 and ranks == {2}:
        return tf.cast(_at_once(features, device, joined=True)[0], dtype)
    return tf.concat([tf.cast(each, dtype) for each in lookup_features(features)], -1)


def _groups(features: list[Feature]) -> dict[str | None, list[int]]:
    """Returns the numbers of the features by the device whose op looks them up; None for no op."""
    groups: dict[str | None, list[int]] = {}
    for number, feature in enumerate(features):
        table = feature.variable._table
        has_op = table.is_one and table.tables[0].pools and table.spec.value_dtype.is_floating
        groups.setdefault(table.spec.devices[0] if has_op else None, []).append(number)
    return groups


def _at_once(features: list[Feature], device: str, joined: bool = False) -> list[Rows]:
    """Returns the rows of each feature. Gradients flow to rows and weights.

    The op reads all tables at the same time, and stores only the rows that it returns. So
    the number of operations does not depend on the number of features.

    The tables of `features` must be on `device`, in one shard in memory each. With `joined` the
    result is one matrix [examples, sum of dims]. Then all features must have combiners, values of
    one dtype and as many examples.

    Returns:
        Rows of the value dtype; see `lookup_features`.
    """
    tables = list({id(each.variable._table): each.variable for each in features}.values())
    number_of = {id(each._table): number for number, each in enumerate(tables)}
    structure: list[tf.Tensor] = []
    weights: list[tf.Tensor] = []
    ids: list[tf.Tensor] = []
    for feature in features:
        table = feature.variable._table
        kind = kind_of(feature.ids)
        keys_and_values.note_kind(kind, table)
        ids.append(_flat(feature.ids))
        structure += _structure(feature.ids)
        if feature.weights is not None:
            weights.append(
                tf.cast(_flat(feature.weights), arithmetic_dtype(feature.variable.value_dtype))
            )
    anchors = {number: anchor for number, each in enumerate(tables) for anchor in each._anchors()}
    real = [arithmetic_dtype(feature.variable.value_dtype) for feature in features]
    with tf.device(device):
        rows = library.de_lookup_features(
            [each.resource_handle for each in tables],
            ids,
            structure,
            weights,
            list(anchors.values()),
            anchored=list(anchors),
            Tkeys=[tables[number].key_dtype for number in anchors],
            Trows=real[:1] if joined else real,
            table_of=[number_of[id(each.variable._table)] for each in features],
            dims=[each.dim for each in tables],
            Tvalues=[each.value_dtype for each in tables],
            kinds=[kind_of(each.ids) for each in features],
            combiners=[each.combiner or "" for each in features],
            lengths=[-1 if each.max_length is None else each.max_length for each in features],
            weighted=[each.weights is not None for each in features],
            padded=[each.mask_key is not None for each in features],
            padding=["" if each.mask_key is None else str(each.mask_key) for each in features],
            joined=joined,
        )
    if joined:
        rows = [tf.cast(rows[0], features[0].variable.value_dtype)]
        rows[0].set_shape([features[0].output_shape[0], None])
        return rows
    return [_shaped(*each) for each in zip(rows, features, strict=True)]


@tf.RegisterGradient("DeLookupFeatures")
def _lookup_gradient(op: Any, *gradients: tf.Tensor) -> list[Any]:
    """Returns the gradients with respect to the weights and to the anchors.

    The inputs of `op`, the forward op, are tables, ids, their structure, weights and anchors.
    `gradients` has the gradient of each output.
    """
    handles, ids, structure, weights, anchors = _inputs_of(op)
    given = (ids, structure, weights, [tf.convert_to_tensor(each) for each in gradients])
    before = len(handles) + len(ids) + len(structure)
    weight_gradients: list[tf.Tensor | None] = [None] * len(weights)
    if any(is_wanted(op, before + number) for number in range(len(weights))):
        weight_gradients = library.de_lookup_features_weight_gradient(
            handles, *given, anchors, **_attributes_of(op)
        )
    tables = [op.get_attr("anchored"), op.get_attr("Tkeys")]
    return [None] * before + [*weight_gradients, *_anchor_gradients(op, anchors, *tables, *given)]


def _anchor_gradients(
    op: Any, anchors: list[Any], trained: list[int], key_dtypes: list[tf.DType], *given: Any
) -> list[Any]:
    """Returns the gradient of each anchor: one slice per distinct id of its table.

    `trained` has the number of each anchor's table, `key_dtypes` the dtype of its keys. `given` are
    ids, structure, weights and the rows' gradients.
    """
    if not anchors:
        return []
    attributes = _attributes_of(op)
    attributes["Tvalues"] = [arithmetic_dtype(each) for each in attributes["Tvalues"]]
    keys, values = library.de_lookup_features_gradient(
        *given,
        trained=trained,
        Tkeys=key_dtypes,
        Ttrained=[attributes["Tvalues"][number] for number in trained],
        **attributes,
    )
    return [anchor_slices(*each) for each in zip(anchors, keys, values, strict=True)]


@tf.RegisterGradient("DeLookupFeaturesWeightGradient")
def _weight_gradient_gradient(op: Any, *dot_gradients: tf.Tensor) -> list[Any]:
    """Returns the second-order gradients of `pooled_sums` through its weights.

    The op computes for each key the dot product of its row and its segment's gradient. So the
    gradient with respect to the segments' gradients is a pooled lookup whose weights are the
    gradient of the dots, [n].
    """
    _check_is_sum(op)
    handle, keys, splits, _, gradient, *anchors = op.inputs
    weights = [tf.convert_to_tensor(each) for each in dot_gradients]
    segment_gradient = None
    if is_wanted(op, 4):
        [value_dtype], [dim] = op.get_attr("Tvalues"), op.get_attr("dims")
        segment_gradient = pooled_sums(
            handle, keys, splits, weights, anchors, value_dtype=value_dtype, dim=dim
        )
    tables = [[0] * len(anchors), [keys.dtype] * len(anchors)]
    given = [[keys], [splits], weights, [gradient]]
    anchor_gradients = _anchor_gradients(op, anchors, *tables, *given)
    return [None, None, None, None, segment_gradient, *anchor_gradients]


@tf.RegisterGradient("DeLookupFeaturesGradient")
def _row_gradient_gradient(op: Any, *gradients: tf.Tensor) -> list[Any]:
    """Returns the second-order gradients of `pooled_sums` through its rows.

    The op's outputs are distinct keys [u] and their slices [u, dim].
    """
    _check_is_sum(op)
    keys, splits, *weights, gradient = op.inputs
    distinct, slice_gradient = op.outputs[0], gradients[1]
    _, places = tf.unique(tf.concat([distinct, tf.cast(keys, distinct.dtype)], 0))
    rows = tf.gather(slice_gradient, places[tf.size(distinct) :])
    segments = tf.ragged.row_splits_to_segment_ids(splits)
    weight_gradients = [tf.reduce_sum(rows * tf.gather(gradient, segments), 1) for _ in weights]
    for each in weights:
        rows *= each[:, None]
    segment_gradient = tf.math.unsorted_segment_sum(rows, segments, tf.size(splits) - 1)
    return [None, None, *weight_gradients, segment_gradient]


def _check_is_sum(op: Any) -> None:
    """Raises LookupError unless an op over features is part of the gradient of `pooled_sums`."""
    kinds, combiners = (
        [tf.compat.as_str(each) for each in op.get_attr(name)] for name in ("kinds", "combiners")
    )
    rest = [op.get_attr(name) for name in ("lengths", "padded")]
    if (kinds, combiners, *rest) != (["ragged"], ["sum"], [-1], [False]):
        raise LookupError(
            "A second-order gradient needs a lookup of its own for each feature. Received: one for "
            f"ids of kinds {kinds} with combiners {combiners}. Use `de.embedding_lookup` or "
            "`de.embedding_lookup_sparse`."
        )


def _attributes_of(op: Any) -> dict[str, Any]:
    return {name: op.get_attr(name) for name in _ATTRIBUTES}


def _inputs_of(op: Any) -> list[list[tf.Tensor]]:
    """Returns the handles, ids, structure, weights and anchors of the op."""
    inputs = iter(op.inputs)
    sizes = [len(op.get_attr("dims")), len(op.get_attr("kinds")), op.get_attr("structures")]
    sizes.append(sum(op.get_attr("weighted")))
    return [*(list(itertools.islice(inputs, size)) for size in sizes), list(inputs)]


def _flat(ids: Ids) -> tf.Tensor:
    """Returns the ids as the op takes them: dense ids as they are, others without structure."""
    return ids.values if isinstance(ids, (tf.RaggedTensor, tf.SparseTensor)) else ids


def _structure(ids: Ids) -> list[tf.Tensor]:
    if isinstance(ids, tf.RaggedTensor):
        return [tf.cast(ids.row_splits, tf.int64)]
    return [ids.indices, ids.dense_shape] if isinstance(ids, tf.SparseTensor) else []


def _shaped(rows: tf.Tensor, feature: Feature) -> Rows:
    """Returns the rows of a feature in the value dtype, with their static shape."""
    rows = tf.cast(rows, feature.variable.value_dtype)
    is_unbounded = feature.combiner is None and feature.max_length is None
    if is_unbounded and isinstance(feature.ids, tf.RaggedTensor):
        return feature.ids.with_values(rows)
    rows.set_shape(feature.output_shape)
    return rows


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
        results.append(_reshaped(rows, feature))
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


def _reshaped(rows: tf.Tensor, feature: Feature) -> Rows:
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
