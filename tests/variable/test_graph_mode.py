"""Tests Variables in graphs of TensorFlow 1: sessions, Savers, MetaGraphs."""

import gc
import weakref

import numpy as np
import pytest
import tensorflow as tf

import de_core as de
from tests.support.mapped_memory import mapped_bytes

v1 = tf.compat.v1


@pytest.fixture
def graph():
    with tf.Graph().as_default() as graph:
        yield graph


def keys(*values):
    return np.array(values, np.int64)


def collected(key):
    return [variable.name for variable in v1.get_collection(key)]


class SaverOfAUser(v1.train.Saver):
    def __init__(self, given):
        super().__init__(var_list=given, max_to_keep=3)


@pytest.mark.usefixtures("graph")
class TestCollections:
    def test_a_trainable_variable_joins_those_of_dense_ones(self):
        users = de.get_variable("users", dim=2)
        assert collected(v1.GraphKeys.TRAINABLE_VARIABLES) == ["users/anchor:0"]
        assert collected(v1.GraphKeys.GLOBAL_VARIABLES) == ["users/anchor:0"]
        assert collected(v1.GraphKeys.LOCAL_VARIABLES) == []
        assert users.trainable_variables == v1.trainable_variables()
        assert users.variables == v1.global_variables()

    @pytest.mark.parametrize(
        "arguments", [{"trainable": False}, {"value_dtype": tf.int64}], ids=["asked", "integers"]
    )
    def test_a_variable_that_is_not_trainable_is_only_global(self, arguments):
        users = de.get_variable("users", dim=2, **arguments)
        assert collected(v1.GraphKeys.TRAINABLE_VARIABLES) == []
        assert collected(v1.GraphKeys.GLOBAL_VARIABLES) == ["users/anchor:0"]
        assert users.trainable_variables == []

    def test_a_local_variable_is_local_only(self):
        counts = de.get_local_variable("counts", dim=2)
        assert collected(v1.GraphKeys.LOCAL_VARIABLES) == ["counts/anchor:0"]
        assert collected(v1.GraphKeys.GLOBAL_VARIABLES) == []
        assert collected(v1.GraphKeys.SAVEABLE_OBJECTS) == []
        assert collected(v1.GraphKeys.TRAINABLE_VARIABLES) == []
        assert not counts.trainable

    def test_scopes_name_everything(self):
        with v1.variable_scope("model"), tf.name_scope("other"):
            de.get_variable("users", dim=2)
        assert collected(v1.GraphKeys.GLOBAL_VARIABLES) == ["model/users/anchor:0"]

    def test_equal_names_share_nothing(self):
        first, second = (de.Variable(dim=1, name="same") for _ in range(2))
        third = de.get_variable("same", dim=1)
        assert [each.name for each in (first, second, third)] == ["same", "same_1", "same_2"]
        assert [de.Variable().name for _ in range(2)] == [
            "DynamicEmbedding_Variable",
            "DynamicEmbedding_Variable_1",
        ]
        write = first.upsert([1], [[7.0]])
        with v1.Session() as session:
            session.run(write)
            assert session.run([t.size() for t in (first, second, third)]) == [1, 0, 0]


@pytest.mark.usefixtures("graph")
class TestSessions:
    def test_reading_has_no_side_effects_and_needs_no_initializer(self):
        users = de.get_variable("users", dim=2, initializer="uniform", devices=["/CPU:0"] * 2)
        ids = v1.placeholder(tf.int64, [None])
        rows, size = de.embedding_lookup(users, ids), users.size()
        with v1.Session() as session:
            first = session.run(rows, {ids: [1, 2]})
            np.testing.assert_array_equal(session.run(rows, {ids: [2, 1]}), first[::-1])
            assert session.run(size) == 0

    def test_initializing_empties_the_tables(self):
        users = de.get_variable("users", dim=1, devices=["/CPU:0"] * 3)
        local = de.get_local_variable("local", dim=1)
        writes = [users.upsert([1, 2], [[1.0], [2.0]]), local.upsert([1], [[1.0]])]
        sizes = [users.size(), local.size()]
        with v1.Session() as session:
            session.run(v1.global_variables_initializer())
            session.run(writes)
            assert session.run(sizes) == [2, 1]
            session.run(v1.global_variables_initializer())
            assert session.run(sizes) == [0, 1]
            session.run(v1.local_variables_initializer())
            assert session.run(sizes) == [0, 0]

    def test_each_session_has_its_own_rows(self):
        users = de.get_variable("users", dim=1)
        write, size = users.upsert([1], [[1.0]]), users.size()
        with v1.Session() as first, v1.Session() as second:
            first.run(write)
            assert (first.run(size), second.run(size)) == (1, 0)

    @pytest.mark.parametrize("key_dtype", [tf.int64, tf.int32, tf.string])
    def test_every_verb(self, key_dtype):
        def of(*ids):
            return [str(i) for i in ids] if key_dtype == tf.string else list(ids)

        users = de.get_variable("users", key_dtype, dim=2, devices=["/CPU:0"] * 2, initializer=9.0)
        rows, exists = users.lookup(of(1, 2), return_exists=True)
        verbs = {
            "upsert": users.upsert(of(1, 2, 3), [[1.0, 1.0], [2.0, 2.0], [3.0, 3.0]]),
            "accum": users.accum(of(1, 4), tf.zeros([2, 2]), tf.ones([2, 2])),
            "remove": users.remove(of(2, 99)),
            "clear": users.clear(),
            "reserve": users.reserve(100),
            "shrink": users.shrink_to_fit(),
        }
        inserted, export = users.find_or_insert(of(5)), users.export()
        contains, size = users.contains(of(1, 2)), users.size()
        parts = [users.size(0), users.size(1)]
        with v1.Session() as session:
            for verb in ("reserve", "upsert", "accum", "remove", "shrink"):
                assert isinstance(verbs[verb], tf.Operation)
                session.run(verbs[verb])
            assert session.run(rows).tolist() == [[2, 2], [9, 9]]
            assert session.run(exists).tolist() == session.run(contains).tolist() == [True, False]
            assert session.run(inserted).tolist() == [[9, 9]]
            exported, values = session.run(export)
            assert {int(k): v[0] for k, v in zip(exported, values, strict=True)} == {
                1: 2,
                3: 3,
                4: 1,
                5: 9,
            }
            assert sum(session.run(parts)) == session.run(size) == 4
            session.run(verbs["clear"])
            assert session.run(size) == 0


def drop_sessions():
    with tf.Graph().as_default():
        users = de.get_variable("users", dim=64)
        first = v1.placeholder(tf.int64, [])
        ids = first + tf.range(20_000, dtype=tf.int64)
        write = users.upsert(ids, tf.ones([20_000, 64]))
        used = []
        for _ in range(12):
            with v1.Session() as session:
                for start in range(0, 100_000, 20_000):
                    session.run(write, {first: start})
            used.append(mapped_bytes())
    table = 100_000 * 64 * 4
    assert used[-1] - used[3] < 3 * table, used  # eight more sessions


def test_the_tables_memory_goes_with_the_session(forks):
    done = forks.call(drop_sessions)
    assert done.returncode == 0, done.stderr


@pytest.mark.usefixtures("graph")
class TestRegularizers:
    def test_the_scopes_applies_to_the_distinct_rows_of_each_lookup(self):
        with v1.variable_scope("s", regularizer=tf.keras.regularizers.L2(0.5)):
            users = de.get_variable("users", dim=2, initializer=1.0)
            other = de.get_variable("other", dim=2, initializer=1.0, regularizer=tf.nn.l2_loss)
        free = de.get_variable("free", dim=2, initializer=1.0)
        de.embedding_lookup_sparse(users, tf.sparse.from_dense(keys(4, 4, 5)[None]), None)
        de.embedding_lookup(other, keys(1))
        de.embedding_lookup(free, keys(1))
        losses = v1.get_collection(v1.GraphKeys.REGULARIZATION_LOSSES)
        (gradient,) = tf.gradients(v1.losses.get_regularization_loss(), users.trainable_variables)
        with v1.Session() as session:
            assert session.run(losses) == [2.0, 1.0]
            indices, values = session.run([gradient.indices, gradient.values])
            assert dict(zip(indices.tolist(), values.tolist(), strict=True)) == {
                4: [1, 1],
                5: [1, 1],
            }

    def test_a_regularizer_that_returns_none_adds_nothing(self):
        users = de.get_variable("users", dim=2, regularizer=lambda rows: None)  # noqa: ARG005
        users.lookup(keys(1))
        assert v1.get_collection(v1.GraphKeys.REGULARIZATION_LOSSES) == []
        with v1.Session() as session:
            assert session.run(users.regularization_loss(keys(1))) == 0


class TestSavers:
    def build(self, shards, name="users"):
        table = de.get_variable(
            name, dim=2, devices=["/CPU:0"] * shards, initializer=tf.keras.initializers.Constant(5)
        )
        ids = v1.placeholder(tf.int64, [None], name=f"{name}_ids")
        tf.identity(de.embedding_lookup(table, ids), name=f"{name}_rows")
        return table

    @pytest.mark.each_choice
    @pytest.mark.parametrize(("saved", "restored"), [(1, 1), (1, 3), (3, 2), (2, 1)])
    @pytest.mark.parametrize("sharded", [False, True])
    def test_any_number_of_tables_reads_what_another_wrote(
        self, tmp_path, saved, restored, sharded
    ):
        rows = np.random.default_rng(2).normal(size=(50, 2)).astype(np.float32)
        with tf.Graph().as_default(), v1.Session() as session:
            write = self.build(saved).upsert(tf.range(50, dtype=tf.int64), rows)
            more = self.build(saved, "items").upsert([7], [[7.0, 7.0]])
            v1.get_variable("dense", initializer=3.0)
            session.run(v1.global_variables_initializer())
            session.run([write, more])
            path = v1.train.Saver(sharded=sharded).save(session, str(tmp_path / "model"))
        with tf.Graph().as_default(), v1.Session() as session:
            users, items = self.build(restored), self.build(restored, "items")
            dense = v1.get_variable("dense", initializer=0.0)
            stale = users.upsert([1, 777], [[0.0, 0.0], [0.0, 0.0]])
            saver = v1.train.Saver(sharded=sharded)
            session.run(stale)
            saver.restore(session, path)
            assert session.run([users.size(), items.size(), dense]) == [50, 1, 3]
            read = users.lookup(tf.range(51, dtype=tf.int64))
            np.testing.assert_array_equal(session.run(read), [*rows, [5, 5]])

    @pytest.mark.parametrize("graph_too", [False, True])
    def test_tables_in_a_list_are_saved(self, tmp_path, graph_too):
        with tf.Graph().as_default(), v1.Session() as session:
            tables = [self.build(1), self.build(2, "items"), self.build(1, "others")]
            # Only a Saver that has this one in its list saves it.
            tables.append(de.get_variable("by_hand", dim=2, checkpoint=False))
            dense = v1.get_variable("dense", initializer=3.0)
            session.run(v1.global_variables_initializer())
            session.run([table.upsert([7], [[7.0, 7.0]]) for table in tables])
            listed = [tables[0], dense, tables[1], tables[3]]
            graphs = v1.get_collection(v1.GraphKeys.SAVEABLE_OBJECTS) if graph_too else []
            saver = v1.train.Saver(listed + graphs)
            path = saver.save(session, str(tmp_path / "model"))
            session.run([table.clear() for table in tables])
            saver.restore(session, path)
            sizes = session.run([table.size() for table in tables])
            assert sizes == [1, 1, int(graph_too), 1]

    def test_tables_in_a_dict_are_refused(self):
        with tf.Graph().as_default():
            given = {"users": self.build(1), "dense": v1.get_variable("dense", initializer=3.0)}
            with pytest.raises(ValueError, match=r"must be a list.*Received: a dict.*users"):
                v1.train.Saver(given)

    def test_the_variable_of_a_table_is_not_saved_without_the_rows(self, tmp_path):
        with tf.Graph().as_default(), v1.Session() as session:
            write = self.build(1).upsert([1], [[1.0, 1.0]])
            dense = v1.get_variable("dense", initializer=3.0)
            saved_elsewhere = de.get_variable("elsewhere", dim=1, checkpoint=False).variables
            anchor = v1.trainable_variables()[0]
            for given in (
                v1.global_variables(),
                (anchor, dense),
                {anchor, dense},
                [[anchor], dense],
                {"renamed": anchor},
                {"renamed": anchor, "dense": dense},
            ):
                for kind in (v1.train.Saver, SaverOfAUser):
                    with pytest.raises(ValueError, match=r"users/anchor.*SAVEABLE_OBJECTS"):
                        kind(given)
            v1.train.Saver([dense, *saved_elsewhere])
            v1.train.Saver({"dense": dense, "elsewhere": saved_elsewhere[0]})
            (rows,) = v1.get_collection(v1.GraphKeys.SAVEABLE_OBJECTS)
            for given in (
                [*v1.global_variables(), rows],
                {"renamed": anchor, "dense": dense, "rows": rows},
            ):
                saver = v1.train.Saver(given, max_to_keep=3)
                session.run(v1.global_variables_initializer())
                session.run(write)
                path = saver.save(session, str(tmp_path / "model"))
                session.run(v1.global_variables_initializer())
                saver.restore(session, path)
                assert session.run("users_rows:0", {"users_ids:0": [1]}).tolist() == [[1.0, 1.0]]

    def test_checkpoint_false_is_left_out(self, tmp_path):
        with tf.Graph().as_default(), v1.Session() as session:
            de.get_variable("users", dim=1, checkpoint=False)
            session.run(v1.global_variables_initializer())
            path = v1.train.Saver().save(session, str(tmp_path / "model"))
        assert [name for name, _ in tf.train.list_variables(path)] == ["users/anchor"]

    def test_another_process_imports_the_meta_graph(self, run_python, tmp_path):
        with tf.Graph().as_default(), v1.Session() as session:
            write = self.build(2).upsert([1, 2], [[1.0, 1.0], [2.0, 2.0]])
            session.run(v1.global_variables_initializer())
            session.run(write)
            path = v1.train.Saver().save(session, str(tmp_path / "model"))
        program = (
            "import sys\nimport tensorflow as tf\nimport de_core\nv1 = tf.compat.v1\n"
            "v1.disable_v2_behavior()\n"
            "saver = v1.train.import_meta_graph(sys.argv[1] + '.meta')\n"
            "with v1.Session() as session:\n"
            "    session.run(v1.global_variables_initializer())\n"
            "    print(session.run('users_rows:0', {'users_ids:0': [1, 2, 3]}).tolist())\n"
            "    saver.restore(session, sys.argv[1])\n"
            "    print(session.run('users_rows:0', {'users_ids:0': [1, 2, 3]}).tolist())\n"
            "    saver.save(session, sys.argv[1] + '_again')\n"
        )
        initial, restored = run_python(program, path).splitlines()
        assert initial == str([[5.0, 5.0]] * 3)
        assert restored == str([[1.0, 1.0], [2.0, 2.0], [5.0, 5.0]])
        with tf.Graph().as_default(), v1.Session() as session:
            table = self.build(1)
            v1.train.Saver().restore(session, f"{path}_again")
            assert session.run(table.size()) == 2


def test_a_process_without_version_2_behavior(run_python):
    program = (
        "import tensorflow as tf\nimport de_core as de\nv1 = tf.compat.v1\n"
        "v1.disable_v2_behavior()\n"
        "users = de.get_variable('users', dim=2, initializer=v1.constant_initializer(0.5))\n"
        "ids = v1.placeholder(tf.int64, [None])\n"
        "rows = de.embedding_lookup(users, ids)\n"
        "(gradient,) = tf.gradients(tf.reduce_sum(rows), v1.trainable_variables())\n"
        "train = users.upsert(gradient.indices, rows - gradient.values)\n"
        "with v1.Session() as session:\n"
        "    session.run(v1.global_variables_initializer())\n"
        "    session.run(train, {ids: [3, 4]})\n"
        "    print(session.run(rows, {ids: [3, 5]}).tolist(), session.run(users.size()))\n"
    )
    assert run_python(program).strip() == "[[-0.5, -0.5], [0.5, 0.5]] 2"


def test_a_graph_takes_its_variables_with_it():
    with tf.Graph().as_default() as graph:
        users = weakref.ref(de.get_variable("users", dim=1))
        gone = weakref.ref(graph)
    del graph
    gc.collect()
    assert gone() is None
    assert users() is None
