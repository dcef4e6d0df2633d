"""The number of operations in a training step: a constant, plus a few per table."""

import keras
import pytest
import tensorflow as tf

import de_core as de

v1 = tf.compat.v1


def new_tables(count, shards=1):
    return [de.Variable(dim=2, name=f"t{i}", devices=["/CPU:0"] * shards) for i in range(count)]


def anchors_of(tables):
    return [each for table in tables for each in table.trainable_variables]


def operations_of_a_step(count, shards=1):
    """Counts the ops of a `tf.function` that looks up each table twice and so joins gradients."""
    tables = new_tables(count, shards)
    anchors = anchors_of(tables)
    optimizer = de.DynamicEmbeddingOptimizer(keras.optimizers.Adam(0.1))
    optimizer.build(anchors)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.int64)])
    def step(ids):
        with tf.GradientTape() as tape:
            rows = [de.embedding_lookup(t, ids) + de.embedding_lookup(t, ids + 1) for t in tables]
            loss = tf.add_n([tf.reduce_sum(each) for each in rows])
        optimizer.apply_gradients(zip(tape.gradient(loss, anchors), anchors, strict=True))

    return len(step.get_concrete_function().graph.get_operations())


def operations_of_three_shards(count):
    return operations_of_a_step(count, shards=3)


def operations_of_a_graph(count):
    """Counts the ops that a session runs for the same step, in a graph of TensorFlow 1."""
    with tf.Graph().as_default() as graph:
        tables = new_tables(count)
        ids = v1.placeholder(tf.int64, [None])
        rows = [de.embedding_lookup(t, ids) + de.embedding_lookup(t, ids + 1) for t in tables]
        loss = tf.add_n([tf.reduce_sum(each) for each in rows])
        optimizer = de.DynamicEmbeddingOptimizer(v1.train.AdamOptimizer(0.1))
        step = optimizer.minimize(loss, var_list=anchors_of(tables))
        run = v1.graph_util.extract_sub_graph(graph.as_graph_def(), [step.name])
    return len(run.node)


@pytest.mark.parametrize(
    ("operations", "each", "once"),
    [
        # `each` counts the operations of one table, `once` all others.
        (operations_of_a_step, 28, 33),
        (operations_of_three_shards, 81, 33),
        (operations_of_a_graph, 30, 25),
    ],
)
def test_the_number_of_operations_grows_by_a_constant_per_table(operations, each, once):
    counts = {tables: operations(tables) for tables in (1, 2, 4, 8)}
    assert counts[8] - counts[4] == 2 * (counts[4] - counts[2])
    for tables, count in counts.items():
        assert count <= once + each * tables
