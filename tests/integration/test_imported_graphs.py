"""What can be done with the tables of a MetaGraph beyond running what came with it."""

import numpy as np
import pytest
import tensorflow as tf

import de_core as de

v1 = tf.compat.v1
HEIGHT = 10
START = np.random.default_rng(5).normal(size=(HEIGHT, 3)).astype(np.float32)
BATCHES = np.random.default_rng(6).integers(0, HEIGHT, (6, 8))


class OwnSgd(v1.train.GradientDescentOptimizer):
    """One without a rule inside the tables."""

    def _resource_apply_dense(self, grad, handle):
        return super()._resource_apply_dense(grad, handle)


def export(path, optimizer=None, **arguments):
    """Exports a graph with a table and a dense variable of the same rows, and their losses."""
    with tf.Graph().as_default() as graph, v1.Session() as session:
        ids = v1.placeholder(tf.int64, [None], name="ids")
        table = de.get_variable("users", dim=3, **arguments)
        dense = v1.get_variable("dense", initializer=START, use_resource=True)
        tf.identity(dense, name="all_dense")
        everything = np.arange(HEIGHT)
        tf.identity(table.lookup(everything), name="all_rows")
        tf.identity(table.size(), name="table_size")
        fill = table.upsert(everything, START)
        rows = de.embedding_lookup(table, ids)
        loss = tf.reduce_sum(rows**3, name="loss") + tf.reduce_sum(tf.gather(dense, ids) ** 3)
        tf.identity(loss, name="both")
        if optimizer is not None:
            step = v1.train.create_global_step()
            de.DynamicEmbeddingOptimizer(optimizer()).minimize(
                graph.get_tensor_by_name("loss:0"), step, name="train"
            )
            graph.get_collection_ref("train_op").clear()
        session.run(v1.global_variables_initializer())
        session.run(fill)
        return v1.train.Saver().save(session, str(path / "model"))


def train(session, operation, prefix=""):
    for ids in BATCHES:
        session.run(operation, {f"{prefix}ids:0": ids})


@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize(
    "make",
    [
        lambda: v1.train.MomentumOptimizer(0.01, 0.0),
        lambda: v1.train.AdagradOptimizer(0.1),
        OwnSgd,
    ],
    ids=["momentum", "adagrad", "without a rule"],
)
@pytest.mark.filterwarnings("ignore:.*has no rule inside the tables")
def test_a_new_optimizer_trains_imported_tables_to_the_dense_rows(tmp_path, make, shards):
    make = (lambda: OwnSgd(0.01)) if make is OwnSgd else make
    path = export(tmp_path, devices=["/CPU:0"] * shards)
    with tf.Graph().as_default() as graph, v1.Session() as session:
        saver = v1.train.import_meta_graph(f"{path}.meta")
        optimizer = de.DynamicEmbeddingOptimizer(make())
        operation = optimizer.minimize(graph.get_tensor_by_name("both:0"))
        session.run(v1.global_variables_initializer())
        saver.restore(session, path)
        np.testing.assert_array_equal(session.run("all_rows:0"), START)
        train(session, operation)
        rows, dense = session.run(["all_rows:0", "all_dense:0"])
        assert np.abs(rows - START).max() > 0.01
        np.testing.assert_allclose(rows, dense, rtol=1e-5, atol=1e-6)
        assert [table.spec.dim for table in optimizer.tables] == [3]


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


@pytest.mark.parametrize("scope", [None, "copy"])
@pytest.mark.parametrize("name", ["GradientDescent", "Adam", "Adagrad", "Ftrl", "Adadelta"])
def test_an_optimizer_that_was_not_wrapped_is_stopped(tmp_path, name, scope):
    path = export(tmp_path)
    prefix = f"{scope}/" if scope else ""
    with tf.Graph().as_default() as graph:
        v1.train.import_meta_graph(f"{path}.meta", import_scope=scope)
        loss = graph.get_tensor_by_name(f"{prefix}loss:0")
        optimizer = getattr(v1.train, f"{name}Optimizer")(0.1)
        message = rf"use de.DynamicEmbeddingOptimizer.*gradient for the table '{prefix}users'"
        with pytest.raises(RuntimeError, match=message):
            optimizer.minimize(loss)
        assert de.DynamicEmbeddingOptimizer(optimizer).minimize(loss) is not None


def test_it_keeps_slots_of_its_own_beside_those_that_came_with_the_graph(tmp_path):
    path = export(tmp_path, lambda: v1.train.AdamOptimizer(0.01))
    with tf.Graph().as_default() as graph, v1.Session():
        v1.train.import_meta_graph(f"{path}.meta")
        optimizers = [de.DynamicEmbeddingOptimizer(v1.train.AdamOptimizer(0.01)) for _ in range(2)]
        for optimizer in optimizers:
            optimizer.minimize(graph.get_tensor_by_name("loss:0"))
        owners = {tf.get_static_value(each.slots_owner).item() for each in optimizers}
        assert owners == {b"Adam_1", b"Adam_2"}


def test_graphs_imported_under_scopes_are_trained(tmp_path):
    path = export(tmp_path)
    with tf.Graph().as_default() as graph, v1.Session() as session:
        saver = v1.train.import_meta_graph(f"{path}.meta", import_scope="first")
        optimizer = de.DynamicEmbeddingOptimizer(v1.train.GradientDescentOptimizer(0.01))
        operation = optimizer.minimize(graph.get_tensor_by_name("first/both:0"))
        session.run(v1.global_variables_initializer())
        saver.restore(session, path)
        train(session, operation, "first/")
        rows, dense = session.run(["first/all_rows:0", "first/all_dense:0"])
        np.testing.assert_allclose(rows, dense, rtol=1e-5, atol=1e-6)
        again = v1.train.Saver().save(session, str(tmp_path / "again"))
    kept = {name.replace(".S", "/") for name, _ in tf.train.list_variables(again)}
    assert kept == {"first/dense", "first/users/anchor", "first/users/rows"}


def test_a_new_saver_saves_rows_and_slots_and_its_graph_is_imported_again(tmp_path):
    """Trains in three processes' worth of graphs, each from the MetaGraph of the last."""
    path, steps = export(tmp_path, devices=["/CPU:0"] * 2), 0
    dense = START.copy()
    sums = np.full_like(START, 0.1)
    for generation in range(3):
        with tf.Graph().as_default() as graph, v1.Session() as session:
            saver = v1.train.import_meta_graph(f"{path}.meta")
            if generation == 0:
                adagrad = de.DynamicEmbeddingOptimizer(v1.train.AdagradOptimizer(0.1))
                adagrad.minimize(graph.get_tensor_by_name("loss:0"), name="train")
                fresh = v1.train.Saver()
                session.run(v1.global_variables_initializer())
            saver.restore(session, path)
            for ids in BATCHES[steps : steps + 2]:
                session.run("train", {"ids:0": ids})
                gradient = np.zeros_like(dense)
                np.add.at(gradient, ids, 3 * dense[ids] ** 2)
                sums += gradient**2
                dense -= 0.1 * gradient / np.sqrt(sums)
            steps += 2
            saver = fresh if generation == 0 else saver
            path = saver.save(session, str(tmp_path / f"generation_{generation}"))
            assert len(list(tmp_path.glob(f"generation_{generation}.data-r*"))) == 2
            np.testing.assert_allclose(session.run("all_rows:0"), dense, rtol=1e-4, atol=1e-6)


OTHER_PROCESS = """
import sys
import numpy as np, tensorflow as tf
import de_core as de
v1 = tf.compat.v1
v1.disable_v2_behavior()
path = sys.argv[1]
saver = v1.train.import_meta_graph(path + ".meta")
loss = v1.get_default_graph().get_tensor_by_name("both:0")
train = de.DynamicEmbeddingOptimizer(v1.train.FtrlOptimizer(0.1)).minimize(loss)
with v1.Session() as session:
    session.run(v1.global_variables_initializer())
    saver.restore(session, path)
    for step in range(3):
        session.run(train, {"ids:0": np.arange(step, step + 4)})
    rows, dense = session.run(["all_rows:0", "all_dense:0"])
    np.testing.assert_allclose(rows, dense, rtol=1e-5, atol=1e-6)
    print(abs(rows).sum() > 0, session.run("table_size:0"))
"""


def test_another_process_trains_what_it_imports(tmp_path, run_python):
    assert run_python(OTHER_PROCESS, export(tmp_path)).splitlines()[-1] == "True 10"


def test_admission_is_asked_by_an_optimizer_on_gathered_rows(tmp_path):
    path = export(tmp_path, admission=de.AdmissionCount(2))
    with tf.Graph().as_default() as graph, v1.Session() as session:
        v1.train.import_meta_graph(f"{path}.meta")
        with pytest.warns(UserWarning, match="has no rule"):
            optimizer = de.DynamicEmbeddingOptimizer(OwnSgd(0.01))
        operation = optimizer.minimize(graph.get_tensor_by_name("loss:0"))
        session.run(v1.global_variables_initializer())
        sizes = []
        for _ in range(3):
            session.run(operation, {"ids:0": [1, 2]})
            sizes.append(session.run("table_size:0"))
        assert sizes == [0, 2, 2]


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"partitioner": lambda ids, n: ids % n, "devices": ["/CPU:0"] * 2}, "a partitioner"),
        ({"restrict_policy": None}, ""),
    ],
)
def test_what_a_metagraph_does_not_bring_is_named(tmp_path, arguments, reason):
    path = export(tmp_path, **arguments)
    with tf.Graph().as_default() as graph:
        v1.train.import_meta_graph(f"{path}.meta")
        if not reason:
            graph.get_collection_ref("dynamic_embedding_records").clear()
            reason = "an earlier version"
        optimizer = de.DynamicEmbeddingOptimizer(v1.train.AdamOptimizer())
        with pytest.raises(ValueError, match=rf"make the graph anew.*users/anchor.*{reason}"):
            optimizer.minimize(graph.get_tensor_by_name("loss:0"))
