"""Training in sessions of TensorFlow 1 matches a dense variable with the same rows."""

import numpy as np
import pytest
import tensorflow as tf

import de_core as de

v1 = tf.compat.v1
HEIGHT, DIM, STEPS = 30, 3, 6
START = np.random.default_rng(3).normal(size=(HEIGHT, DIM)).astype(np.float32)
BATCHES = np.random.default_rng(4).integers(0, HEIGHT, (STEPS, 8, 2))


def loss_of(lookup, lookup_sparse, params, batch):
    """Looks up one table three times, with duplicates within and across the lookups."""
    weights = tf.range(1.0, DIM + 1)
    rows = lookup(params, batch)
    first = lookup(params, batch[:, 0])
    pooled = lookup_sparse(params, tf.sparse.from_dense(batch + 1), None, combiner="mean")
    return (
        tf.reduce_mean(tf.square(tf.reduce_sum(rows * weights, [1, 2])))
        + tf.reduce_mean(first)
        + tf.reduce_mean(pooled * weights)
    )


def build(shards):
    """Creates both models; returns their placeholder, training operation and rows."""
    batch = v1.placeholder(tf.int64, [None, 2])
    dense = v1.get_variable("dense", initializer=START, use_resource=True)
    table = de.get_variable("table", dim=DIM, devices=["/CPU:0"] * shards)
    everything = tf.range(HEIGHT, dtype=tf.int64)
    dense_loss = loss_of(
        tf.nn.embedding_lookup, v1.nn.embedding_lookup_sparse, dense, tf.minimum(batch, HEIGHT - 2)
    )
    table_loss = loss_of(
        de.embedding_lookup, de.embedding_lookup_sparse, table, tf.minimum(batch, HEIGHT - 2)
    )
    step = v1.train.get_or_create_global_step()
    with v1.name_scope("train"):
        train = tf.group(
            v1.train.AdagradOptimizer(0.1).minimize(dense_loss, var_list=[dense]),
            de.DynamicEmbeddingOptimizer(v1.train.AdagradOptimizer(0.1)).minimize(
                table_loss, global_step=step, var_list=table.trainable_variables
            ),
        )
    return batch, train, dense, table.lookup(everything), table.upsert(everything, START)


@pytest.mark.parametrize("shards", [1, 3])
def test_monitored_sessions_end_with_the_numbers_of_a_dense_variable(tmp_path, shards):
    for begin, end in ((0, 2), (2, STEPS)):
        with tf.Graph().as_default():
            batch, train, dense, rows, fill = build(shards)
            with v1.train.MonitoredTrainingSession(
                checkpoint_dir=str(tmp_path), log_step_count_steps=None
            ) as session:
                if begin == 0:
                    session.run(fill)
                for ids in BATCHES[begin:end]:
                    session.run(train, {batch: ids})
                if end == STEPS:
                    expected = session.run(dense)
                    assert np.abs(expected - START).max() > 0.01
                    np.testing.assert_allclose(session.run(rows), expected, atol=1e-6)


@pytest.mark.parametrize("shards", [1, 2])
def test_a_finalized_graph_reads_all_rows(shards):
    with tf.Graph().as_default():
        users = de.get_variable(
            "users",
            dim=2,
            devices=["/CPU:0"] * shards,
            restrict_policy=de.TimestampRestrictPolicy,
        )
        fill = users.upsert([1, 2, 3], tf.ones([3, 2]))
        with v1.train.MonitoredSession() as session:
            session.run(fill)
            assert session.run(users.size()) == 3
            assert session.run(users.restrict_policy.status.size()) == 3
            keys, values = session.run(users.export())
            assert sorted(keys.tolist()) == [1, 2, 3]
            assert values.tolist() == [[1.0, 1.0]] * 3
            session.run(fill)
            assert session.run(users.size()) == 3


@pytest.mark.parametrize(
    "verb",
    [
        lambda users: users.lookup([1]),
        lambda users: users.contains([1]),
        lambda users: users.size(0),
        lambda users: users.upsert([1], [[1.0]]),
        lambda users: de.embedding_lookup(users, [1]),
        lambda users: users.export_keys_and_scores(),
        lambda users: users.restrict(1),
    ],
)
def test_verbs_in_a_finalized_graph_name_the_remedy(verb):
    with tf.Graph().as_default() as graph:
        users = de.get_variable("users", dim=1, restrict_policy=de.TimestampRestrictPolicy)
        graph.finalize()
        with pytest.raises(RuntimeError, match=r"finalized graph\. Call it before the session"):
            verb(users)


def test_reads_wait_for_the_writes_that_control_them():
    with tf.Graph().as_default(), v1.Session() as session:
        users = de.get_variable("users", dim=1)
        session.run(v1.global_variables_initializer())
        with tf.control_dependencies([users.upsert([1, 2], tf.ones([2, 1]))]):
            size = users.size()
        assert session.run(size) == 2


@pytest.mark.parametrize("control_flow_v2", [True, False])
def test_branches_and_loops_hand_gradients_out(control_flow_v2):
    if not control_flow_v2:
        v1.disable_control_flow_v2()
    try:
        with tf.Graph().as_default(), v1.Session() as session:
            table = de.get_variable("table", dim=1, initializer=1.0)
            taken = v1.placeholder(tf.bool, [])
            ids = tf.constant([7, 7, 8], tf.int64)
            branch = tf.cond(
                taken, lambda: tf.reduce_sum(de.embedding_lookup(table, ids)), lambda: 0.0
            )
            (gradient,) = tf.gradients(branch, table.trainable_variables)
            session.run(v1.global_variables_initializer())
            for is_taken, expected in ((True, {7: 2, 8: 1}), (False, {})):
                indices, values = session.run(
                    [gradient.indices, gradient.values], {taken: is_taken}
                )
                summed = {int(i): float(values[indices == i].sum()) for i in indices}
                assert summed == expected
    finally:
        v1.enable_control_flow_v2()


@pytest.mark.parametrize(
    "listed",
    [
        lambda table, _: [table],
        lambda table, _: table.trainable_variables,
        lambda _, wrapper: [wrapper],
        lambda _, wrapper: wrapper,
    ],
    ids=["Variable", "anchors", "wrapper", "wrapper alone"],
)
def test_a_var_list_may_name_a_table_in_several_ways(listed):
    with tf.Graph().as_default(), v1.Session() as session:
        keys = tf.range(3, dtype=tf.int64)
        table = de.get_variable("listed", dim=1, initializer=1.0)
        fixed = de.get_variable("fixed", dim=1, initializer=1.0, trainable=False)
        rows, wrapper = de.embedding_lookup(table, keys[:2], return_trainable=True)
        _, of_fixed = de.embedding_lookup(fixed, keys[:2], return_trainable=True)
        variables = [*tf.nest.flatten(listed(table, wrapper)), fixed, of_fixed]
        optimizer = de.DynamicEmbeddingOptimizer(v1.train.GradientDescentOptimizer(0.5))
        step = optimizer.minimize(tf.reduce_sum(rows), var_list=variables)
        after = table.lookup(keys)
        session.run(v1.global_variables_initializer())
        session.run(step)
        assert session.run(after).tolist() == [[0.5], [0.5], [1.0]]
