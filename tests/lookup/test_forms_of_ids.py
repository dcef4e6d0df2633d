"""Rows and gradients for every form of ids match `tf.nn` on a dense variable."""

import functools

import numpy as np
import pytest
import tensorflow as tf

import de_core as de
from tests.support.dense_peer import Peers

RAGGED = {
    "rank 2": [[3, 3, 5], [], [0, 11]],
    "rank 3": [[[3, 5], []], [], [[1], [2, 3, 0], [11]]],
    "rank 4": [[[[3], [5, 5]], []], [], [[[1, 7], []], [[0]]]],
}
FORMS = {
    "scalar": lambda: tf.constant(3, tf.int64),
    "vector": lambda: tf.constant([3, 3, 5], tf.int64),
    "nothing": lambda: tf.zeros([0], tf.int64),
    "matrix": lambda: tf.constant([[3, 3, 5], [0, 11, 3]], tf.int64),
    "of rank 4": lambda: tf.reshape(tf.range(12, dtype=tf.int64) % 5, [2, 1, 3, 2]),
    **{
        f"ragged of {name}": functools.partial(tf.ragged.constant, ids, dtype=tf.int64)
        for name, ids in RAGGED.items()
    },
    "ragged with dense dimensions inside": lambda: tf.RaggedTensor.from_row_splits(
        tf.constant([[1, 2], [3, 3], [0, 5]], tf.int64), [0, 2, 2, 3]
    ),
}
LOOKUPS = [de.embedding_lookup, de.embedding_lookup_unique]


def scaled(rows):
    """Returns a loss with a different gradient for each row."""
    flat = tf.reshape(rows.flat_values if isinstance(rows, tf.RaggedTensor) else rows, [-1])
    return tf.reduce_sum(flat * tf.range(1.0, tf.cast(tf.size(flat), tf.float32) + 1))


def dense_lookup(dense, ids, max_norm):
    if isinstance(ids, tf.RaggedTensor):
        return ids.with_flat_values(dense_lookup(dense, ids.flat_values, max_norm))
    return tf.nn.embedding_lookup(dense, ids, max_norm=max_norm)


def assert_same(peers, rows, gradient, wanted, wanted_gradient):
    assert rows.dtype == wanted.dtype
    assert rows.shape.as_list() == wanted.shape.as_list()
    if isinstance(wanted, tf.RaggedTensor):
        for ours, theirs in zip(rows.nested_row_splits, wanted.nested_row_splits, strict=True):
            np.testing.assert_array_equal(ours, theirs)
        rows, wanted = rows.flat_values, wanted.flat_values
    np.testing.assert_allclose(rows, wanted, rtol=1e-5, atol=1e-6)
    dense = tf.convert_to_tensor(wanted_gradient)
    np.testing.assert_allclose(peers.dense_gradient(gradient), dense, rtol=1e-5, atol=1e-5)


@pytest.mark.each_choice
@pytest.mark.parametrize("max_norm", [None, 1.0])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("lookup", LOOKUPS)
def test_ids_of_any_rank(lookup, form, max_norm):
    for shards, key_dtype in ((1, tf.int64), (2, tf.string), (3, tf.int32)):
        peers = Peers(key_dtype, shards=shards)
        ids = FORMS[form]()
        with tf.GradientTape() as tape:
            rows, wrapper = lookup(
                peers.table, peers.keys(ids), max_norm=max_norm, name="look", return_trainable=True
            )
            loss = scaled(rows)
        gradient = tape.gradient(loss, wrapper)
        with tf.GradientTape() as tape:
            wanted = dense_lookup(peers.dense, ids, max_norm)
            loss = scaled(wanted)
        assert_same(peers, rows, gradient, wanted, tape.gradient(loss, peers.dense))


@pytest.mark.each_choice
@pytest.mark.parametrize("max_norm", [None, 1.0])
@pytest.mark.parametrize("combiner", ["sum", "mean", "sqrtn"])
@pytest.mark.parametrize("rank", RAGGED)
@pytest.mark.parametrize("lookup", [de.embedding_lookup_sparse, de.safe_embedding_lookup_sparse])
def test_pooled_ragged_ids_of_any_rank(lookup, rank, combiner, max_norm):
    peers = Peers(shards=2)
    ids = tf.ragged.constant(RAGGED[rank], dtype=tf.int64)
    weights = ids.with_flat_values(1.0 + tf.cast(tf.range(tf.size(ids.flat_values)), tf.float32))
    with tf.GradientTape() as tape:
        rows = lookup(peers.table, ids, weights, combiner=combiner, max_norm=max_norm)
        loss = scaled(rows)
    (gradient,) = tape.gradient(loss, peers.table.trainable_variables)
    if lookup is de.embedding_lookup_sparse:
        outer = ids.bounding_shape()[:1]
        first = ids
        while first.ragged_rank > 1:
            first = first.merge_dims(1, 2)
        segments = first.value_rowids()
    else:
        outer = tf.cast([tf.size(ids.nested_row_splits[-1]) - 1], tf.int64)
        inner = ids
        while isinstance(inner.values, tf.RaggedTensor):
            inner = inner.values
        segments = inner.value_rowids()
    with tf.GradientTape() as tape:
        each = dense_lookup(peers.dense, ids.flat_values, max_norm)
        factors = weights.flat_values
        pool = functools.partial(
            tf.math.unsorted_segment_sum, segment_ids=segments, num_segments=outer[0]
        )
        wanted = pool(each * factors[:, None])
        if combiner != "sum":
            norm = pool(factors if combiner == "mean" else factors**2)
            norm = norm if combiner == "mean" else tf.sqrt(norm)
            wanted = tf.math.divide_no_nan(wanted, norm[:, None])
        loss = scaled(wanted)
    flat = rows
    if isinstance(rows, tf.RaggedTensor):
        flat = rows.flat_values
        assert rows.shape[:-1].as_list() == ids.shape[:-1].as_list()
        for ours, outer_splits in zip(rows.nested_row_splits, ids.nested_row_splits, strict=False):
            np.testing.assert_array_equal(ours, outer_splits)
    assert_same(peers, flat, gradient, wanted, tape.gradient(loss, peers.dense))
