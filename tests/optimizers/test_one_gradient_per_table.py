"""A step applies a table's gradient once, even if a list of variables repeats the table."""

import keras
import numpy as np
import pytest
import tensorflow as tf
import tf_keras

import de_core as de

v1 = tf.compat.v1
OPTIMIZERS = {
    "keras": lambda: de.DynamicEmbeddingOptimizer(keras.optimizers.SGD(1.0)),
    "scaled": lambda: de.LossScaleOptimizer(
        de.DynamicEmbeddingOptimizer(keras.optimizers.SGD(1.0)), initial_scale=1.0
    ),
    "tf_keras": lambda: de.DynamicEmbeddingOptimizer(tf_keras.optimizers.SGD(1.0)),
    "legacy": lambda: de.DynamicEmbeddingOptimizer(tf_keras.optimizers.legacy.SGD(1.0)),
    "tensorflow 1": lambda: de.DynamicEmbeddingOptimizer(v1.train.GradientDescentOptimizer(1.0)),
}


@pytest.mark.each_choice
@pytest.mark.parametrize("in_function", [False, True])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_the_anchor_and_wrappers_are_one_variable(name, in_function):
    table, optimizer = de.Variable(dim=1, name="t"), OPTIMIZERS[name]()

    def step():
        with tf.GradientTape() as tape:
            first, wrapper = de.embedding_lookup(table, [3], return_trainable=True)
            second, other = de.embedding_lookup(table, [3, 5], return_trainable=True)
            loss = tf.reduce_sum(first) + tf.reduce_sum(second)
        variables = [*table.trainable_variables, wrapper, other]
        optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))

    (tf.function(step) if in_function else step)()
    np.testing.assert_array_equal(table.lookup([3, 5]), [[-2.0], [-1.0]])


def test_gradients_that_differ_are_refused():
    table, optimizer = de.Variable(dim=1, name="t"), OPTIMIZERS["keras"]()
    with tf.GradientTape(persistent=True) as tape:
        rows, wrapper = de.embedding_lookup(table, [3], return_trainable=True)
        losses = tf.reduce_sum(rows), tf.reduce_sum(rows**2)
    anchor = table.trainable_variables[0]
    pairs = [
        (tape.gradient(losses[0], anchor), anchor),
        (tape.gradient(losses[1], wrapper), wrapper),
    ]
    with pytest.raises(ValueError, match=r"one gradient in a step\. Received: two .* table 't'"):
        optimizer.apply_gradients(pairs)
    assert int(table.size()) == 0


def test_positions_in_distinct_ids_are_not_taken_for_distinct_ids():
    table = de.Variable(dim=1, name="t")
    optimizer = de.DynamicEmbeddingOptimizer(keras.optimizers.SGD(1.0, clipvalue=2.0))

    @tf.function
    def step(values):
        _, positions = tf.unique(values, out_idx=tf.int64)
        with tf.GradientTape() as tape:
            loss = 1.5 * tf.reduce_sum(table.lookup(positions))
        gradients = tape.gradient(loss, table.trainable_variables)
        optimizer.apply(gradients, table.trainable_variables)

    step(tf.constant([5, 5, 6], tf.int64))
    np.testing.assert_array_equal(table.lookup([0, 1]), [[-2.0], [-1.5]])


class TwoTables(keras.Model):
    def __init__(self):
        super().__init__()
        self.users = de.layers.Embedding(2, name="users", initializer=1.0)
        self.items = de.layers.Embedding(2, name="items", initializer=1.0)

    def call(self, ids):
        return tf.reduce_sum(self.users(ids) + self.items(ids), -1, keepdims=True)


IDS, LABELS = np.array([1, 2], np.int64), np.zeros([2, 1], np.float32)


def test_paths_carry_the_names_of_the_tables():
    model = TwoTables()
    model.compile(de.DynamicEmbeddingOptimizer(keras.optimizers.Adam(0.1)), "mse")
    model.fit(IDS, LABELS, verbose=0)
    assert [each.path for each in model.trainable_variables] == ["users/anchor", "items/anchor"]
    tree = model.get_state_tree("numpy_array")
    assert set(tree["trainable_variables"]) == {"users", "items"}
    model.set_state_tree(tree)


def test_tables_under_optimizers_of_their_own():
    model = TwoTables()
    still = de.DynamicEmbeddingOptimizer(keras.optimizers.SGD(0.0))
    moving = de.DynamicEmbeddingOptimizer(keras.optimizers.SGD(0.1))
    optimizers = keras.optimizers.OptimizerMap(still, {"users/.*": moving})
    model.compile(keras.optimizers.MultiOptimizer(optimizers), "mse")
    model.fit(IDS, LABELS, verbose=0)
    np.testing.assert_array_equal(model.items.table.lookup(IDS), np.ones([2, 2]))
    assert np.all(model.users.table.lookup(IDS) != 1)
    with pytest.raises(TypeError, match=r"Wrap each optimizer of a MultiOptimizer: keras"):
        de.DynamicEmbeddingOptimizer(keras.optimizers.MultiOptimizer(optimizers))


@pytest.mark.parametrize("shards", [1, 2])
def test_ids_of_unknown_rank_train(shards):
    table = de.Variable(dim=2, name="t", initializer=1.0, devices=["/CPU:0"] * shards)
    optimizer = OPTIMIZERS["keras"]()
    anchor = table.trainable_variables[0]

    @tf.function(input_signature=[tf.TensorSpec(None, tf.int64)])
    def step(ids):
        with tf.GradientTape() as tape:
            rows = de.embedding_lookup(table, ids) + de.embedding_lookup_unique(table, ids)
            loss = tf.reduce_sum(rows)
        optimizer.apply_gradients([(tape.gradient(loss, anchor), anchor)])
        return rows

    assert step([[3, 5]]).shape == [1, 2, 2]
    np.testing.assert_array_equal(table.lookup([3, 5, 7]), [[-1, -1], [-1, -1], [1, 1]])


@pytest.mark.parametrize("shards", [1, 2])
def test_ids_of_a_placeholder_of_unknown_rank_train(shards):
    with tf.Graph().as_default(), v1.Session() as session:
        table = de.get_variable("t", dim=2, devices=["/CPU:0"] * shards)
        ids = v1.placeholder(tf.int64)
        rows = de.embedding_lookup_many([table], [ids])[0]
        train = OPTIMIZERS["tensorflow 1"]().minimize(tf.reduce_sum(rows))
        session.run(v1.global_variables_initializer())
        session.run(train, {ids: [[3], [3]]})
        assert session.run(rows, {ids: [3, 4]}).tolist() == [[-2, -2], [0, 0]]
