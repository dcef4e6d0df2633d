"""Pooled lookups match `tf.nn` on a dense variable: results, gradients, dtypes, bad input."""

import numpy as np
import pytest
import tensorflow as tf

import de_core as de
from tests.support.dense_peer import Peers

COMBINERS = ["sum", "mean", "sqrtn"]
RAGGED = [[3, 3, 5], [1], [0, 11, 7, 3], [5, 5]]
WEIGHTS = [[0.5, 2.0, 1.5], [3.0], [1.0, 0.25, 4.0, 0.5], [1.0, 2.0]]
# Ids with empty examples in the middle, and ids of higher rank.
SPARSE_3D = tf.SparseTensor(
    [[0, 0, 0], [0, 0, 2], [0, 1, 1], [2, 0, 0], [2, 1, 0], [2, 1, 2], [3, 1, 1]],
    tf.constant([3, 3, 5, 0, 7, 3, 11], tf.int64),
    [4, 2, 3],
)
WEIGHTS_3D = tf.SparseTensor(
    SPARSE_3D.indices, tf.constant([0.5, 0.0, 2.0, -1.0, 1.0, 3.0, 0.5]), SPARSE_3D.dense_shape
)


def ragged_ids():
    return tf.ragged.constant(RAGGED, dtype=tf.int64)


def ragged_weights():
    return tf.ragged.constant(WEIGHTS, dtype=tf.float32)


def of_kind(kind, ragged):
    return ragged if kind == "ragged" else ragged.to_sparse()


@pytest.mark.each_choice
@pytest.mark.parametrize("kind", ["sparse", "ragged"])
@pytest.mark.parametrize("combiner", COMBINERS)
@pytest.mark.parametrize(
    ("key_dtype", "in_function"),
    [(tf.int64, False), (tf.int64, True), (tf.int32, False), (tf.string, False)],
)
def test_pooled_rows_and_their_gradients_are_those_of_a_dense_variable(
    key_dtype, kind, combiner, in_function
):
    ids, weights = of_kind(kind, ragged_ids()), of_kind(kind, ragged_weights())
    for shards, each in [(2, weights)] if in_function else [(1, None), (1, weights), (2, weights)]:
        Peers(key_dtype, shards=shards).check(
            lambda table, keys, w: de.embedding_lookup_sparse(table, keys, w, combiner=combiner),
            lambda dense, keys, w: tf.nn.embedding_lookup_sparse(dense, keys, w, combiner=combiner),
            ids,
            each,
            in_function,
        )


@pytest.mark.each_choice
@pytest.mark.parametrize("combiner", COMBINERS)
@pytest.mark.parametrize("max_norm", [None, 1.0])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("default_id", [None, 9])
def test_safe_lookups_are_those_of_a_dense_variable(combiner, max_norm, weighted, default_id):
    for shards in (1, 3):
        peers = Peers(shards=shards)
        arguments = {"combiner": combiner, "max_norm": max_norm, "default_id": default_id}

        def lookup(table, keys, w, arguments=arguments):
            return de.safe_embedding_lookup_sparse(table, keys, w, **arguments)

        def dense_lookup(dense, keys, w, arguments=arguments):
            # Without a `default_id` TensorFlow reads row 0 for examples without ids.
            return tf.nn.safe_embedding_lookup_sparse(dense, keys, w, **arguments)

        ids = SPARSE_3D
        weights = WEIGHTS_3D if weighted else None
        if default_id is not None:  # `check` allows gradients only of `ids`
            index = tf.constant([[3, 0, 0]], tf.int64)
            ids = tf.sparse.reorder(
                tf.SparseTensor(
                    tf.concat([ids.indices, index], 0),
                    tf.concat([ids.values, [9]], 0),
                    ids.dense_shape,
                )
            )
            weights = weights and tf.SparseTensor(
                ids.indices, tf.constant([0.5, 0.0, 2.0, -1.0, 1.0, 3.0, 1.0, 0.5]), ids.dense_shape
            )
        peers.check(lookup, dense_lookup, ids, weights)


def test_an_example_without_ids_reads_and_trains_no_row():
    table = de.Variable(dim=2, initializer=1.0)
    ids = tf.ragged.constant([[5], [], [6, 7]], dtype=tf.int64)
    with tf.GradientTape(persistent=True) as tape:
        zeros = de.safe_embedding_lookup_sparse(table, ids, default_id=None)
        full = de.safe_embedding_lookup_sparse(table, ids[:1], default_id=4)
    np.testing.assert_array_equal(zeros, [[1, 1], [0, 0], [1, 1]])
    (gradient,) = tape.gradient(zeros, table.trainable_variables)
    assert sorted(gradient.indices.numpy()) == [5, 6, 7]
    (gradient,) = tape.gradient(full, table.trainable_variables)
    assert gradient.indices.numpy().tolist() == [5]


def test_negative_ids_are_ids():
    table = de.Variable(dim=1)
    table.upsert([-1, 0], [[5.0], [7.0]])
    ids = tf.ragged.constant([[-1, 0], [-1]], dtype=tf.int64)
    np.testing.assert_array_equal(de.safe_embedding_lookup_sparse(table, ids), [[6], [5]])


@pytest.mark.parametrize("kind", ["sparse", "ragged"])
def test_string_ids_in_safe_lookups(kind):
    table = de.Variable(tf.string, dim=1, initializer=1.0)
    table.upsert(["", "b"], [[2.0], [4.0]])
    ids = of_kind(kind, tf.ragged.constant([["a", "b"], []]))
    np.testing.assert_array_equal(de.safe_embedding_lookup_sparse(table, ids), [[2.5], [0]])
    np.testing.assert_array_equal(
        de.safe_embedding_lookup_sparse(table, ids, default_id="", combiner="sum"), [[5], [2]]
    )


def test_ragged_ids_with_dense_dimensions_inside():
    peers = Peers()
    ids = tf.RaggedTensor.from_row_splits(
        tf.constant([[1, 2], [3, 3], [0, 5]], tf.int64), [0, 2, 3]
    )
    rows = de.safe_embedding_lookup_sparse(peers.table, ids)
    wanted = tf.reduce_mean(tf.gather(peers.dense, ids.values), 1)
    np.testing.assert_allclose(rows.values, wanted, rtol=1e-6)
    np.testing.assert_array_equal(rows.row_splits, ids.row_splits)


def test_examples_at_the_end_without_ids_are_zeros():
    table = de.Variable(dim=2, initializer=1.0)
    ids = tf.SparseTensor([[1, 0]], tf.constant([5], tf.int64), [4, 2])
    for combiner in COMBINERS:
        rows = de.embedding_lookup_sparse(table, ids, None, combiner=combiner)
        np.testing.assert_array_equal(rows, [[0, 0], [1, 1], [0, 0], [0, 0]])
    none = tf.SparseTensor(tf.zeros([0, 2], tf.int64), tf.zeros([0], tf.int64), [0, 2])
    assert de.embedding_lookup_sparse(table, none, None).shape == [0, 2]


@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(tf.float64, 1e-12), (tf.float16, 1e-3), (tf.bfloat16, 1e-2)]
)
@pytest.mark.parametrize("combiner", COMBINERS)
def test_the_dtype_of_the_rows_is_that_of_the_result(dtype, tolerance, combiner):
    peers = Peers(value_dtype=dtype)
    peers.check(
        lambda table, keys, w: de.embedding_lookup_sparse(table, keys, w, combiner=combiner),
        lambda dense, keys, w: tf.nn.embedding_lookup_sparse(dense, keys, w, combiner=combiner),
        ragged_ids(),
        None,
        tolerance=tolerance,
    )


def test_half_rows_are_summed_in_float():
    table = de.Variable(value_dtype=tf.float16, dim=1, initializer=1.0)
    ids = tf.RaggedTensor.from_row_lengths(tf.range(4096, dtype=tf.int64), [4096])
    rows = de.embedding_lookup_sparse(table, ids, None, combiner="sum")
    assert rows.numpy().tolist() == [[4096.0]]  # in float16 the sum would stop at 2048


def test_integer_rows_are_summed():
    table = de.Variable(value_dtype=tf.int32, dim=1, initializer=3)
    ids = tf.ragged.constant([[1, 2], [5]], dtype=tf.int64)
    rows = de.embedding_lookup_sparse(table, ids, None, combiner="sum")
    assert rows.numpy().tolist() == [[6], [3]]
    with pytest.raises(TypeError, match="value_dtype=int32, combiner='mean'"):
        de.embedding_lookup_sparse(table, ids, None)


@pytest.mark.parametrize("dim", [1, 15, 16, 17, 64, 130])
@pytest.mark.parametrize("shards", [1, 2])
def test_many_ids_of_segments_of_all_lengths(dim, shards):
    rng = np.random.default_rng(dim)
    lengths = np.concatenate([rng.integers(0, 8, 700), [0, 5000, 1, 0, 700], rng.integers(0, 3, 9)])
    ids = rng.integers(0, 500, lengths.sum())
    weights = rng.normal(size=len(ids)).astype(np.float32)
    values = rng.normal(size=[500, dim]).astype(np.float32)
    table = de.Variable(dim=dim, devices=["/CPU:0"] * shards)
    table.upsert(np.arange(500), values)
    ragged = tf.RaggedTensor.from_row_lengths(ids, lengths)
    with tf.GradientTape() as tape:
        rows = de.embedding_lookup_sparse(
            table, ragged, ragged.with_values(weights), combiner="sum"
        )
        loss = tf.reduce_sum(rows * tf.cast(tf.range(len(lengths))[:, None], tf.float32))
    starts = np.repeat(np.arange(len(lengths)), lengths)
    wanted, gradient = np.zeros([len(lengths), dim]), np.zeros([500, dim])
    np.add.at(wanted, starts, values[ids] * weights[:, None].astype(np.float64))
    np.add.at(gradient, ids, weights[:, None].astype(np.float64) * starts[:, None])
    np.testing.assert_allclose(rows, wanted, atol=2e-4)
    (slices,) = tape.gradient(loss, table.trainable_variables)
    assert len(slices.indices) == len(np.unique(ids))
    ours = np.zeros([500, dim])
    np.add.at(ours, slices.indices.numpy(), slices.values.numpy())
    np.testing.assert_allclose(ours, gradient, rtol=1e-4, atol=0.05)


def test_return_trainable_gives_the_wrapper_of_the_ids():
    table = de.Variable(dim=2, initializer=1.0)
    for lookup in (
        lambda: de.embedding_lookup_sparse(table, ragged_ids(), None, return_trainable=True),
        lambda: de.safe_embedding_lookup_sparse(table, ragged_ids(), return_trainable=True),
    ):
        with tf.GradientTape() as tape:
            rows, wrapper = lookup()
        assert isinstance(wrapper, de.TrainableWrapper)
        assert sorted(tape.gradient(rows, wrapper).indices.numpy()) == [0, 1, 3, 5, 7, 11]


@pytest.mark.parametrize("lookup", [de.embedding_lookup_sparse, de.safe_embedding_lookup_sparse])
@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"ids": tf.constant([[1]], tf.int64)}, TypeError, "must be a tf.SparseTensor or"),
        ({"ids": ragged_ids().with_values(tf.range(10))}, TypeError, "Cast them with tf.cast"),
        ({"weights": tf.constant([1.0])}, TypeError, "a tf.RaggedTensor"),
        ({"weights": ragged_ids()}, TypeError, "floating-point dtype"),
        ({"weights": ragged_weights().to_sparse()}, TypeError, "a tf.RaggedTensor"),
        ({"weights": ragged_weights()[:2]}, ValueError, "one weight per id"),
        ({"combiner": "max"}, ValueError, r"Received: combiner='max' \(of type str\)"),
        ({"params": [1, 2]}, TypeError, "must be a de.Variable"),
        ({"max_norm": tf.constant(-1.0)}, ValueError, "`max_norm` must be None or above 0"),
        ({"max_norm": "1"}, ValueError, "`max_norm` must be None or above 0.*Received"),
    ],
)
def test_bad_arguments_are_named(lookup, arguments, error, message):
    arguments = {"params": de.Variable(dim=2), "ids": ragged_ids(), "weights": None, **arguments}
    params, ids, weights = (arguments.pop(name) for name in ("params", "ids", "weights"))
    with pytest.raises(error, match=message):
        lookup(params, ids, weights, **arguments)


def test_unordered_ids_are_refused_with_the_remedy():
    ids = tf.SparseTensor([[1, 0], [0, 0]], tf.constant([1, 2], tf.int64), [2, 1])
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"tf\.sparse\.reorder sorts them"):
        de.embedding_lookup_sparse(de.Variable(dim=2), ids, None)


def test_safe_lookups_need_examples_of_ids():
    ids = tf.SparseTensor([[0]], tf.constant([1], tf.int64), [2])
    with pytest.raises(ValueError, match=r"must be one id. Received: default_id=.*\[1, 2\]"):
        de.safe_embedding_lookup_sparse(de.Variable(), ragged_ids(), default_id=[1, 2])
    with pytest.raises(ValueError, match="rank 2 or more"):
        de.safe_embedding_lookup_sparse(de.Variable(dim=2), ids)
