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


def dense_lookup(dense, ids, max_norm):
    if isinstance(ids, tf.RaggedTensor):
        return ids.with_flat_values(dense_lookup(dense, ids.flat_values, max_norm))
    return tf.nn.embedding_lookup(dense, ids, max_norm=max_norm)


@pytest.mark.each_choice
@pytest.mark.parametrize("max_norm", [None, 1.0])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("lookup", [de.embedding_lookup, de.embedding_lookup_unique])
def test_ids_of_any_rank(lookup, form, max_norm):
    for shards, key_dtype in ((1, tf.int64), (2, tf.string), (3, tf.int32)):
        Peers(key_dtype, shards=shards).check(
            lambda table, ids, _: lookup(table, ids, max_norm=max_norm, name="look"),
            lambda dense, ids, _: dense_lookup(dense, ids, max_norm),
            FORMS[form](),
            tolerance=1e-5,
        )


def segments_of(ids, lookup):
    """Returns the segment of each id in a ragged tensor, and the number of segments.

    `embedding_lookup_sparse` pools all ids of an example. The safe lookup pools the last axis.
    """
    while ids.ragged_rank > 1:
        ids = ids.merge_dims(1, 2) if lookup is de.embedding_lookup_sparse else ids.values
    return ids.value_rowids(), ids.nrows()


@pytest.mark.each_choice
@pytest.mark.parametrize("max_norm", [None, 1.0])
@pytest.mark.parametrize("combiner", ["sum", "mean", "sqrtn"])
@pytest.mark.parametrize("rank", RAGGED)
@pytest.mark.parametrize("lookup", [de.embedding_lookup_sparse, de.safe_embedding_lookup_sparse])
def test_pooled_ragged_ids_of_any_rank(lookup, rank, combiner, max_norm):
    peers = Peers(shards=2)
    ids = tf.ragged.constant(RAGGED[rank], dtype=tf.int64)
    weights = ids.with_flat_values(1.0 + tf.cast(tf.range(tf.size(ids.flat_values)), tf.float32))
    segments, count = segments_of(ids, lookup)

    def pooled(table, keys, weights):
        rows = lookup(table, keys, weights, combiner=combiner, max_norm=max_norm)
        if not isinstance(rows, tf.RaggedTensor):
            return rows
        assert rows.shape[:-1].as_list() == ids.shape[:-1].as_list()
        for ours, outer_splits in zip(rows.nested_row_splits, ids.nested_row_splits, strict=False):
            np.testing.assert_array_equal(ours, outer_splits)
        return rows.flat_values

    def dense_pooled(dense, ids, weights):
        each, factors = dense_lookup(dense, ids.flat_values, max_norm), weights.flat_values
        pool = functools.partial(
            tf.math.unsorted_segment_sum, segment_ids=segments, num_segments=count
        )
        wanted = pool(each * factors[:, None])
        if combiner != "sum":
            norm = pool(factors if combiner == "mean" else factors**2)
            norm = norm if combiner == "mean" else tf.sqrt(norm)
            wanted = tf.math.divide_no_nan(wanted, norm[:, None])
        return wanted

    peers.check(pooled, dense_pooled, ids, weights, tolerance=1e-5)


@pytest.mark.parametrize("lookup", [de.embedding_lookup, de.embedding_lookup_unique])
def test_sparse_ids_are_refused_with_the_function_for_them(lookup):
    ids = tf.sparse.from_dense(tf.constant([[1, 2], [3, 0]], tf.int64))
    with pytest.raises(TypeError, match=r"SparseTensor of shape.*use de\.embedding_lookup_sparse"):
        lookup(de.Variable(dim=2, name="not_sparse"), ids)
