"""Gradients of lookups in branches and loops match a dense variable."""

import numpy as np
import pytest
import tensorflow as tf

import de_core as de
from tests.support.dense_peer import Peers


def gradient_of(peers, loss_of, lookup, of_table, *inputs):
    """Returns a traced loss, and its gradient with respect to the table or the dense variable."""
    params = peers.table if of_table else peers.dense
    variable = params.trainable_variables[0].value if of_table else params

    @tf.function
    def gradient(*tensors):
        def look_up(numbers):
            return lookup(params, peers.keys(numbers) if of_table else numbers)

        with tf.GradientTape() as tape:
            loss = loss_of(look_up, *tensors)
        return loss, tape.gradient(loss, [variable])[0]

    loss, result = gradient(*inputs)
    if not of_table:
        return loss, tf.convert_to_tensor(result).numpy()
    if isinstance(result, tf.IndexedSlices):
        return loss, peers.dense_gradient(result)
    assert 0 in result.shape  # a dense tensor without rows, if the branch was not taken
    return loss, np.zeros(peers.dense.shape)


def check(peers, loss_of, *inputs, lookup=de.embedding_lookup, dense_lookup=tf.gather):
    loss, ours = gradient_of(peers, loss_of, lookup, True, *inputs)
    wanted, dense = gradient_of(peers, loss_of, dense_lookup, False, *inputs)
    np.testing.assert_allclose(loss, wanted, rtol=1e-5)
    np.testing.assert_allclose(ours, dense, rtol=1e-5, atol=1e-6)


def in_a_branch(look_up, numbers, condition):
    loss = tf.cond(condition, lambda: tf.reduce_sum(tf.square(look_up(numbers))), lambda: 0.5)
    return loss + tf.reduce_sum(look_up(numbers[:1]))


def in_both_branches(look_up, numbers, condition):
    rows = tf.cond(condition, lambda: look_up(numbers), lambda: 2.0 * look_up(numbers[::-1]))
    return tf.reduce_sum(rows * rows)


def in_nested_branches(look_up, numbers, condition):
    def inner():
        return tf.cond(
            tf.size(numbers) > 2,
            lambda: tf.reduce_sum(tf.square(look_up(numbers))),
            lambda: tf.reduce_sum(look_up(numbers)),
        )

    return tf.cond(condition, inner, lambda: 0.0)


def in_one_of_many_branches(look_up, numbers, condition):
    branches = [lambda i=i: i * tf.reduce_sum(look_up(numbers[i:])) for i in range(3)]
    return tf.switch_case(2 * tf.cast(condition, tf.int32), branches)


def in_a_loop(look_up, numbers, condition):
    del condition
    loss = 0.0
    for step in tf.range(3):
        loss += tf.cast(step + 1, tf.float32) * tf.reduce_sum(tf.square(look_up(numbers)))
    return loss + tf.reduce_sum(look_up(numbers))


def in_a_loop_over_ids(look_up, numbers, condition):
    del condition
    loss = 0.0
    for number in numbers:
        loss += tf.reduce_sum(tf.square(look_up(number)))
    return loss


def in_a_branch_of_a_loop(look_up, numbers, condition):
    loss = 0.0
    for step in tf.range(4):
        if condition and step % 2 == 0:
            loss += tf.reduce_sum(tf.square(look_up(numbers)))
    return loss


def in_a_loop_in_a_branch(look_up, numbers, condition):
    return tf.cond(condition, lambda: in_a_loop(look_up, numbers, None), lambda: 1.0)


def in_a_map(look_up, numbers, condition):
    del condition
    rows = tf.map_fn(look_up, numbers, fn_output_signature=tf.float32)
    return tf.reduce_sum(rows * rows)


def carried_through_a_loop(look_up, numbers, condition):
    """Looks up one row per step of a loop. Each step's result depends on all earlier rows."""
    del condition
    state = tf.ones([3])
    for step in tf.range(3):
        state = tf.tanh(state * look_up(numbers[step % 3]))
    return tf.reduce_sum(state)


SHAPES = [
    in_a_branch,
    in_both_branches,
    in_nested_branches,
    in_one_of_many_branches,
    in_a_loop,
    in_a_loop_over_ids,
    in_a_branch_of_a_loop,
    in_a_loop_in_a_branch,
    in_a_map,
    carried_through_a_loop,
]


@pytest.mark.each_choice
@pytest.mark.parametrize(
    ("loss_of", "key_dtype"),
    [
        *((each, tf.int64) for each in SHAPES),
        *((each, tf.string) for each in (in_both_branches, in_a_loop, in_a_loop_in_a_branch)),
        (in_a_branch_of_a_loop, tf.int32),
    ],
)
def test_gradients_of_lookups_in_branches_and_loops(loss_of, key_dtype):
    peers = Peers(key_dtype, shards=2)
    for condition in (True, False):
        check(peers, loss_of, tf.constant([3, 5, 3]), tf.constant(condition))


@pytest.mark.each_choice
@pytest.mark.parametrize("key_dtype", [tf.int64, tf.string])
def test_pooled_lookups_in_branches_and_loops(key_dtype):
    def pooled(lookup):
        return lambda params, keys: lookup(
            params, tf.RaggedTensor.from_row_lengths(keys, [2, 1]), None
        )

    def loss_of(look_up, numbers, condition):
        loss = tf.cond(condition, lambda: tf.reduce_sum(tf.square(look_up(numbers))), lambda: 0.0)
        for _ in tf.range(3):
            loss += tf.reduce_sum(look_up(numbers))
        return loss

    lookups = {
        "lookup": pooled(de.embedding_lookup_sparse),
        "dense_lookup": pooled(tf.nn.embedding_lookup_sparse),
    }
    for condition in (True, False):
        check(Peers(key_dtype), loss_of, tf.constant([3, 5, 7]), tf.constant(condition), **lookups)


@pytest.mark.parametrize("pooled", [False, True])
def test_collections_in_a_branch_of_a_loop(pooled):
    peers, rows = Peers(), de.TableConfig("rows", 3)
    layer = de.layers.EmbeddingCollection({"a": de.FeatureConfig("a", rows, "sum")})
    peers.table = layer.tables["rows"]
    peers.table.upsert(range(12), peers.dense.value())

    def dense_lookup(dense, ids):
        return tf.reduce_sum(tf.gather(dense, ids), 1) if pooled else tf.gather(dense, ids)

    lookups = {"lookup": lambda _, ids: layer({"a": ids})["a"], "dense_lookup": dense_lookup}
    ids = tf.constant([[3, 5], [3, 3]] if pooled else [3, 5])
    for condition in (True, False):
        check(peers, in_a_branch_of_a_loop, ids, tf.constant(condition), **lookups)


def test_a_tape_outside_the_function_sees_its_branches_and_loops():
    table = de.Variable(dim=2, initializer=1.0)

    @tf.function
    def loss_of(ids, condition):
        loss = tf.cond(condition, lambda: tf.reduce_sum(table.lookup(ids)), lambda: 0.0)
        for _ in tf.range(2):
            loss += tf.reduce_sum(table.lookup(ids[:1]))
        return loss

    with tf.GradientTape() as tape:
        loss = loss_of(tf.constant([1, 2], tf.int64), tf.constant(True))
    (gradient,) = tape.gradient(loss, table.trainable_variables)
    total = tf.math.unsorted_segment_sum(gradient.values, gradient.indices, 3)
    np.testing.assert_array_equal(total, [[0, 0], [3, 3], [1, 1]])


def test_a_long_loop_keeps_all_of_its_gradients():
    table = de.Variable(dim=1, initializer=1.0)

    @tf.function
    def gradient(steps):
        with tf.GradientTape() as tape:
            loss = 0.0
            for step in tf.range(steps):
                loss += tf.reduce_sum(table.lookup(step[None]))
        return tape.gradient(loss, table.trainable_variables)[0]

    result = gradient(tf.constant(20_000, tf.int64))
    assert sorted(result.indices.numpy()) == list(range(20_000))
    assert np.all(result.values.numpy() == 1)


def test_a_gradient_taken_inside_a_loop_trains_there():
    table = de.Variable(dim=2, initializer=1.0)

    @tf.function
    def total(ids):
        result = tf.zeros([2])
        for _ in tf.range(3):
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(table.lookup(ids))
            gradient = tape.gradient(loss, table.trainable_variables)[0]
            table.upsert(gradient.indices, table.lookup(gradient.indices) - gradient.values)
            result += gradient.values[0]
        return result

    assert total(tf.constant([4], tf.int64)).numpy().tolist() == [3, 3]
    assert table.lookup([4]).numpy().tolist() == [[-2, -2]]


def test_tables_of_other_dtypes_in_a_loop():
    for dtype in (tf.float64, tf.float16, tf.bfloat16):
        table = de.Variable(value_dtype=dtype, dim=2, initializer=1.0)

        @tf.function
        def gradient(table=table, dtype=dtype):
            with tf.GradientTape() as tape:
                loss = tf.constant(0, dtype)
                for _ in tf.range(2):
                    loss += tf.reduce_sum(table.lookup([1]))
            return tape.gradient(loss, table.trainable_variables)[0]

        result = gradient()
        assert result.values.dtype == (tf.float64 if dtype == tf.float64 else tf.float32)
        assert result.indices.numpy().tolist() == [1, 1]


@pytest.mark.parametrize("key_dtype", [tf.int64, tf.string])
def test_a_function_called_in_a_loop_is_refused_and_never_trains_wrongly(key_dtype):
    table = de.Variable(key_dtype, dim=2)
    inner = tf.function(lambda ids: tf.reduce_sum(table.lookup(ids)))

    @tf.function
    def gradient(ids):
        with tf.GradientTape() as tape:
            loss = 0.0
            for _ in tf.range(3):
                loss += inner(ids)
        return tape.gradient(loss, table.trainable_variables)

    with pytest.raises((TypeError, ValueError, tf.errors.InvalidArgumentError)):
        gradient(tf.constant(["4"]) if key_dtype == tf.string else tf.constant([4], key_dtype))
