"""Tests optimizers that are created in eager mode and used in a graph of TensorFlow 1."""

import keras
import numpy as np
import pytest
import tensorflow as tf
import tf_keras

import de_core as de

v1 = tf.compat.v1


def trained(optimizer):
    """Returns a dense variable and rows after one step. They start at 1; gradients are 2 and 1."""
    with tf.Graph().as_default(), v1.Session() as session:
        dense = tf.Variable(tf.ones([2]))
        table = de.get_variable("users", dim=2, initializer=1.0)
        loss = tf.reduce_sum(dense**2) + tf.reduce_sum(table.lookup(tf.constant([1, 2], tf.int64)))
        variables = [dense, *table.trainable_variables]
        pairs = list(zip(tf.gradients(loss, variables), variables, strict=True))
        step, rows = optimizer.apply_gradients(pairs), table.lookup(tf.constant([1], tf.int64))
        session.run(v1.global_variables_initializer())
        session.run(step)
        return session.run([dense, rows])


@pytest.mark.parametrize(
    "make", [v1.train.GradientDescentOptimizer, tf_keras.optimizers.legacy.SGD]
)
def test_optimizers_of_tensorflow_1_and_legacy_ones_make_their_variables_in_the_graph(make):
    dense, rows = trained(de.DynamicEmbeddingOptimizer(make(0.25)))
    np.testing.assert_array_equal(dense, [0.5, 0.5])
    np.testing.assert_array_equal(rows, [[0.75, 0.75]])


@pytest.mark.parametrize("of", [keras.optimizers, tf_keras.optimizers])
def test_new_optimizers_are_refused_with_the_remedy(of):
    optimizer = de.DynamicEmbeddingOptimizer(of.SGD(0.25))
    with pytest.raises(RuntimeError, match=r"made in the graph.*Received: SGD with variables of"):
        trained(optimizer)


def test_a_legacy_optimizer_that_was_used_eagerly_is_refused():
    table, used = de.Variable(dim=2), de.DynamicEmbeddingOptimizer(tf_keras.optimizers.legacy.SGD())
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(table.lookup([1]))
    [anchor] = table.trainable_variables
    used.apply_gradients([(tape.gradient(loss, anchor), anchor)])
    with pytest.raises(RuntimeError, match="made in the graph"):
        trained(used)
