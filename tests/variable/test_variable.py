import numpy as np
import pytest
import tensorflow as tf

import de_core as de


def new(**arguments):
    return de.Variable(**{"dim": 2, **arguments})


@pytest.mark.parametrize("shape", [[], [3], [2, 3], [2, 1, 3, 1, 2], [0], [2, 0, 3]])
@pytest.mark.parametrize("shards", [1, 3])
def test_lookup_returns_a_row_for_each_key_of_any_shape(shape, shards):
    table, keys = new(devices=["/CPU:0"] * shards, initializer=0.5), tf.zeros(shape, tf.int64)
    values, exists = table.lookup(keys, return_exists=True)
    assert values.shape == [*shape, 2]
    assert exists.shape == shape
    np.testing.assert_array_equal(values, np.full([*shape, 2], 0.5))
    assert not np.any(exists)
    assert table.contains(keys).shape == shape
    assert table.find_or_insert(keys).shape == [*shape, 2]


def test_upsert_takes_keys_of_any_shape():
    table = new()
    table.upsert([[1, 2], [3, 4]], tf.reshape(tf.range(8.0), [2, 2, 2]))
    np.testing.assert_array_equal(table.lookup([4]), [[6, 7]])
    table.upsert(5, [8.0, 9.0])
    np.testing.assert_array_equal(table.lookup(5), [8, 9])


@pytest.mark.parametrize("index", [-1, 3, "a"])
def test_size_of_a_table_that_is_not_there(index):
    with pytest.raises((ValueError, TypeError), match=f"to 2, or None. Received: index={index!r}"):
        new(devices=["/CPU:0"] * 3).size(index)


def test_export_of_an_empty_table():
    keys, values = new(key_dtype=tf.string).export()
    assert keys.shape == [0]
    assert values.shape == [0, 2]


@pytest.mark.parametrize("shards", [1, 3])
def test_accum_adds_to_existing_rows_and_inserts_the_others(shards):
    table = new(initializer=5.0, devices=["/CPU:0"] * shards)
    table.upsert([1, 3], [[1, 1], [1, 1]])
    old = table.lookup([1, 2, 3])
    table.upsert([1], [[10, 10]])  # another worker writes and removes meanwhile
    table.remove([3])
    table.accum([1, 2, 3], old, old + 2.0, exists=[True, False, True])
    np.testing.assert_array_equal(table.lookup([1, 2, 3]), [[12, 12], [7, 7], [3, 3]])


@pytest.mark.parametrize("dim", [1, 3, 100, 101, 4096])
def test_rows_of_any_dim(dim):
    table = de.Variable(dim=dim)
    rows = tf.reshape(tf.range(2.0 * dim), [2, dim])
    table.upsert([1, 2], rows)
    np.testing.assert_array_equal(table.lookup([1, 2]), rows)


def test_attributes_are_those_it_was_made_with():
    table = de.Variable(
        tf.string,
        tf.float64,
        3,
        ["/CPU:0", "/CPU:0"],
        name="scope/users",
        initializer=2.0,
        trainable=False,
        checkpoint=False,
        init_size=10,
        bp_v2=True,
    )
    assert (table.key_dtype, table.value_dtype, table.dim) == (tf.string, tf.float64, 3)
    assert table.devices == ["/CPU:0", "/CPU:0"]
    assert table.shard_num == len(table.tables) == 2
    assert [each.name for each in table.tables] == ["scope/users_mht_1of2", "scope/users_mht_2of2"]
    assert table.name == "scope/users"
    assert table.initializer == 2.0
    assert (table.trainable, table.checkpoint, table.bp_v2) == (False, False, True)
    assert (table.init_size, table.restrict_policy) == (10, None)
    assert table.partition_fn is de.default_partition_fn
    assert table.resource_handle.dtype == tf.resource
    assert "scope/users" in repr(table)


def test_it_is_a_module_of_its_name():
    table = new(name="5 users/ä")
    assert isinstance(table, tf.Module)
    assert table.name == "5 users/ä"
    with table.name_scope:
        assert tf.constant(1.0).shape == []
    holder = tf.Module()
    holder.table = table
    assert table in holder.submodules


@pytest.mark.parametrize("shards", [1, 2])
@pytest.mark.parametrize("key_dtype", [tf.int64, tf.int32, tf.string])
def test_verbs_work_in_a_function_in_program_order(shards, key_dtype):
    table = new(devices=["/CPU:0"] * shards, key_dtype=key_dtype)

    @tf.function(input_signature=[tf.TensorSpec([None], key_dtype), tf.TensorSpec([None, 2])])
    def update(keys, rows):
        table.reserve(1000)
        table.upsert(keys, rows)
        before = table.lookup(keys)
        table.remove(keys[:1])
        after, found, size = table.lookup(keys), table.contains(keys), table.size()
        inserted = table.find_or_insert(keys)
        table.shrink_to_fit()
        return before, after, found, size, inserted, table.size()

    keys = tf.constant(["1", "2"] if key_dtype == tf.string else [1, 2], key_dtype)
    before, after, found, size, inserted, later = update(keys, tf.ones([2, 2]))
    np.testing.assert_array_equal(before, np.ones([2, 2]))
    np.testing.assert_array_equal(after, [[0, 0], [1, 1]])
    assert found.numpy().tolist() == [False, True]
    np.testing.assert_array_equal(inserted, after)
    assert (int(size), int(later)) == (1, 2)


def test_shapes_are_known_while_tracing():
    table = new(devices=["/CPU:0"] * 2)
    shapes = []

    @tf.function(input_signature=[tf.TensorSpec([None, 3], tf.int64)])
    def look(keys):
        values, exists = table.lookup(keys, return_exists=True)
        shapes.extend([values.shape.as_list(), exists.shape.as_list()])
        return values

    look(tf.zeros([2, 3], tf.int64))
    assert shapes == [[None, 3, 2], [None, 3]]
