"""Tables in graphs and sessions of TensorFlow 1: finalized graphs, control flow."""

import pytest
import tensorflow as tf

import de_core as de

v1 = tf.compat.v1


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
