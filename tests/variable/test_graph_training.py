"""Tables in graphs of TensorFlow 1 that are finalized, branch or loop, or were imported."""

import numpy as np
import pytest
import tensorflow as tf

import de_core as de

v1 = tf.compat.v1
HEIGHT = 10
START = np.random.default_rng(5).normal(size=(HEIGHT, 3)).astype(np.float32)


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


def export(path, optimizer=None):
    """Exports a graph with a filled table and a loss."""
    with tf.Graph().as_default() as graph, v1.Session() as session:
        ids = v1.placeholder(tf.int64, [None], name="ids")
        table = de.get_variable("users", dim=3)
        everything = np.arange(HEIGHT)
        tf.identity(table.lookup(everything), name="all_rows")
        fill = table.upsert(everything, START)
        rows = de.embedding_lookup(table, ids)
        loss = tf.reduce_sum(rows**3, name="loss")
        if optimizer is not None:
            step = v1.train.create_global_step()
            de.DynamicEmbeddingOptimizer(optimizer()).minimize(loss, step, name="train")
            graph.get_collection_ref("train_op").clear()
        session.run(v1.global_variables_initializer())
        session.run(fill)
        return v1.train.Saver().save(session, str(path / "model"))


def test_a_graph_that_was_exported_without_a_saver_says_so(tmp_path):
    path = str(tmp_path / "graph")
    with tf.Graph().as_default():
        de.get_variable("users", dim=3)
        v1.train.export_meta_graph(path)
    with tf.Graph().as_default(), pytest.raises(TypeError, match=r"need_Saver\.export_meta"):
        v1.train.import_meta_graph(path)


def test_monitored_sessions_train_on_by_the_saver_of_the_import(tmp_path):
    path = export(tmp_path, lambda: v1.train.GradientDescentOptimizer(0.1))
    rows = []
    for _ in range(2):
        with tf.Graph().as_default() as graph:
            saver = v1.train.import_meta_graph(f"{path}.meta")
            with pytest.raises(TypeError, match=r"need_.*the_Saver_of_import_meta_graph"):
                v1.train.Saver()
            train_op = graph.get_operation_by_name("train")
            scaffold = v1.train.Scaffold(
                saver=saver, init_fn=lambda _, session, saver=saver: saver.restore(session, path)
            )
            with v1.train.MonitoredTrainingSession(
                checkpoint_dir=str(tmp_path / "runs"), scaffold=scaffold, log_step_count_steps=None
            ) as session:
                rows.append(session.run("all_rows:0"))
                session.run(train_op, {"ids:0": [1, 1, 2]})
                rows.append(session.run("all_rows:0"))
    np.testing.assert_array_equal(rows[0], START)
    np.testing.assert_array_equal(rows[2], rows[1])
    assert np.abs(rows[3][1:3] - rows[2][1:3]).min() > 0


def test_a_new_optimizer_is_refused(tmp_path):
    path = export(tmp_path)
    with tf.Graph().as_default() as graph:
        v1.train.import_meta_graph(f"{path}.meta")
        loss = graph.get_tensor_by_name("loss:0")
        optimizer = v1.train.AdamOptimizer(0.1)
        with pytest.raises(RuntimeError, match=r"imported .*users/anchor.*with the original code"):
            de.DynamicEmbeddingOptimizer(optimizer).minimize(loss)
        train = optimizer.minimize(loss)
        with v1.Session() as session:
            session.run(v1.global_variables_initializer())
            with pytest.raises(tf.errors.InvalidArgumentError, match="users/anchor"):
                session.run(train, {"ids:0": [1]})
