"""Every promise in the documents of `tfra.dynamic_embedding` holds, in every execution mode."""

import numpy as np
import pytest
import tensorflow as tf

import de_core as de
from tests.support import execution_modes
from tests.support.execution_modes import int64

v1 = tf.compat.v1
CPU = "/CPU:0"


@pytest.fixture(params=execution_modes.NAMES)
def mode(request):
    with execution_modes.entered(request.param) as mode:
        yield mode


class TestArguments:
    """Tests the promises on Variable and get_variable."""

    def test_the_documented_partition_function_says_the_table_of_each_key(self, mode):
        def default_partition_fn(keys, shard_num):
            return tf.cast(keys % shard_num, dtype=tf.int32)

        table = de.Variable(dim=1, devices=[CPU] * 3, partitioner=default_partition_fn)
        mode.run(lambda: table.upsert(int64(0, 1, 3, 6), tf.ones([4, 1])))
        assert [int(mode.run(lambda i=i: table.size(i))) for i in range(3)] == [3, 1, 0]
        assert table.partition_fn is default_partition_fn

    def test_the_shared_name_is_not_used(self, mode):
        first, second = (de.Variable(dim=1, shared_name="one") for _ in range(2))
        mode.run(lambda: first.upsert(int64(1), [[1.0]]))
        assert mode.run(second.size) == 0

    # tests/tables/test_initial_rows.py has every kind of initializer.
    def test_a_missing_key_reads_as_the_initializer_says(self, mode):
        def initializer(shape, dtype):
            return tf.fill(shape, tf.cast(7, dtype))

        table = de.Variable(dim=2, initializer=initializer)
        assert mode.run(table.lookup, int64(1, -1)).tolist() == [[7, 7], [7, 7]]
        assert mode.run(table.size) == 0

    def test_the_initializer_may_be_a_tensor(self, mode):
        table = de.Variable(dim=2, initializer=tf.constant([1.0, 2.0]) * 2.0)
        assert mode.run(table.lookup, int64(1)).tolist() == [[2, 4]]

    def test_a_random_initializer_gives_each_missing_key_its_own_row(self, mode):
        def initializer(shape):
            return np.random.default_rng(0).uniform(1.0, 2.0, shape)

        table = de.Variable(dim=4, initializer=initializer)
        rows = mode.run(table.lookup, int64(*range(100)))
        assert ((rows >= 1) & (rows <= 2)).all()
        assert len(np.unique(rows, axis=0)) == 100
        np.testing.assert_array_equal(mode.run(table.lookup, int64(3, 3)), rows[[3, 3]])

    def test_the_initial_size_is_divided_among_the_devices(self):
        bytes_of = {
            size: [
                each.stats()["bytes"]["index"]
                for each in de.Variable(
                    dim=1, devices=[CPU] * shards, init_size=size * shards
                ).tables
            ]
            for size, shards in ((1_000, 1), (250_000, 4), (500_000, 2), (1_000_000, 1))
        }
        assert len(set(bytes_of[250_000])) == 1
        assert bytes_of[1_000][0] < bytes_of[250_000][0] < bytes_of[500_000][0]
        assert bytes_of[500_000][0] < bytes_of[1_000_000][0]

    def test_without_a_restrict_policy_restrict_returns_none(self, mode):
        creator = de.tfra.dynamic_embedding.CuckooHashTableCreator()
        table = de.get_variable("created", dim=1, kv_creator=creator)
        mode.run(lambda: table.upsert(int64(1, 2, 3), [[1.0], [2.0], [3.0]]))
        assert table.restrict_policy is None
        assert table.restrict(1) is None
        assert mode.run(table.size) == 3


class TestVerbs:
    def test_the_name_may_follow_the_keys_as_it_once_did(self, mode):
        table = de.Variable(dim=2, initializer=9.0)
        assert mode.run(lambda: table.lookup(int64(1), "rows")).tolist() == [[9, 9]]

    def test_values_of_the_shape_of_keys_are_rows_of_one(self, mode):
        table = de.Variable(value_dtype=tf.int32)
        mode.run(table.upsert, int64(1, 2), np.array([10, 20], np.int32))
        mode.run(table.accum, int64(2), np.array([20], np.int32), np.array([21], np.int32))
        assert mode.run(table.lookup, int64(1, 2)).tolist() == [[10], [21]]


class TestSharing:
    """The rules of tf.get_variable and tf.get_local_variable."""

    @pytest.mark.parametrize("get", [de.get_variable, de.get_local_variable])
    def test_the_documented_example(self, mode, get):
        def foo():
            with v1.variable_scope("foo", reuse=v1.AUTO_REUSE):
                return get(f"v_{mode.name}_{get.__name__}", dim=1)

        v_1 = foo()  # Creates v.
        v_2 = foo()  # Gets the same, existing v.
        assert v_1 is v_2
        assert v_1.name.startswith("foo/v_")

    @pytest.mark.parametrize("get", [de.get_variable, de.get_local_variable])
    def test_the_scopes_initializer_stands_in(self, mode, get):
        name = f"init_{mode.name}_{get.__name__}"
        with v1.variable_scope(f"scope_{name}", initializer=v1.constant_initializer(4.0)):
            inherited, own = get("a", dim=1), get("b", dim=1, initializer=5.0)
        assert mode.run(inherited.lookup, int64(1)).tolist() == [[4]]
        assert mode.run(own.lookup, int64(1)).tolist() == [[5]]
        assert mode.run(get(name).lookup, int64(1)).tolist() == [[0]]

    def test_a_local_variable_is_never_trainable(self, mode):
        table = de.get_local_variable(f"local_{mode.name}", trainable=True)
        assert not table.trainable
        assert table.trainable_variables == []
        assert not table.checkpoint

    def test_a_table_goes_by_its_name_in_a_server(self):
        server = v1.train.Server.create_local_server()
        for run in range(2):
            with tf.Graph().as_default(), v1.Session(server.target) as session:
                users = de.get_variable("shared_by_name", dim=1)
                key = session.run(users.size())
                assert key == run
                session.run(users.upsert(int64(key), [[1.0]]))


class TestScopesInGraphs:
    """Arguments of variable_scope that exist only in graphs."""

    @pytest.fixture(autouse=True)
    def graph(self):
        with execution_modes.entered("graph") as mode:
            yield mode

    @pytest.mark.parametrize("get", [de.get_variable, de.get_local_variable])
    def test_reuse_is_checked(self, get):
        with v1.variable_scope("s"):
            table = get("v")
            with pytest.raises(ValueError, match="Variable s/v already exists"):
                get("v")
        with v1.variable_scope("s", reuse=True):
            assert get("v") is table
            with pytest.raises(ValueError, match="Variable s/w does not exist"):
                get("w")

    @pytest.mark.parametrize(
        ("partitioner", "tables"),
        [
            (v1.fixed_size_partitioner(3), 3),
            (v1.variable_axis_size_partitioner(1 << 20, max_shards=5), 5),
            (v1.min_max_variable_partitioner(max_partitions=4), 4),
        ],
    )
    def test_the_scopes_partitioner_decides_the_number_of_tables(self, partitioner, tables):
        with v1.variable_scope("s", partitioner=partitioner):
            assert de.get_variable("v", dim=8).devices == [CPU] * tables
            assert de.get_variable("w", dim=8, devices=["cpu:0"] * tables).shard_num == tables
            with pytest.raises(ValueError, match=f"each of the {tables} shards.*Received: dev"):
                de.get_variable("x", dim=8, devices=["cpu:0"] * 2)

    @pytest.mark.parametrize(
        "partitioner",
        [
            v1.fixed_size_partitioner(2, axis=1),
            v1.variable_axis_size_partitioner(1 << 20),
        ],
    )
    def test_a_partitioner_that_cannot_divide_a_table_is_an_error(self, partitioner):
        with (
            v1.variable_scope("s", partitioner=partitioner),
            pytest.raises(ValueError, match="keep each row whole"),
        ):
            de.get_variable("v", dim=8)

    def test_a_constraint_is_refused(self):
        with (
            v1.variable_scope("s", constraint=tf.keras.constraints.NonNeg()),
            pytest.raises(NotImplementedError, match="`constraint`"),
        ):
            de.get_variable("v")

    def test_a_caching_device_has_no_effect(self, graph):
        with v1.variable_scope("s", caching_device=CPU):
            table = de.get_variable("v", initializer=2.0)
        assert graph.run(table.lookup, int64(1)).tolist() == [[2]]

    def test_a_regularizer_that_is_no_function_is_refused(self):
        with pytest.raises(TypeError, match="`regularizer` must be a function of rows"):
            de.get_variable("v", regularizer=0.1)
