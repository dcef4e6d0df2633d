"""Tests the ops that read and write rows: what only ops have, and what they refuse.

The tests of a Variable test their results, eagerly and in functions.
"""

import numpy as np
import pytest
import tensorflow as tf

from de_core.base.ops import library

KEYS = tf.constant([1, 2, 3], tf.int64)
ROWS = tf.constant([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])


def find(table, keys, dim=2, dtype=tf.float32):
    keys = tf.constant(keys, tf.int64) if isinstance(keys, list) else keys
    return library.de_table_find(table, keys, Tvalues=dtype, dim=dim)


@pytest.fixture
def table(make_table):
    handle = make_table(initializer="constant", init_args=[9.0])
    library.de_table_insert_or_assign(handle, KEYS, ROWS)
    return handle


def test_a_table_found_by_its_shared_name_is_the_same(run, make_table):
    def named():
        return make_table(anonymous=False, shared_name="found by name")

    run(lambda keys, rows: library.de_table_insert_or_assign(named(), keys, rows), KEYS, ROWS)
    assert int(run(lambda: library.de_table_size(named()))) == 3
    tf.raw_ops.DestroyResourceOp(resource=named())


def test_a_shared_name_of_another_table_is_refused(make_table):
    handle = make_table(anonymous=False, shared_name="two dims")
    with pytest.raises(tf.errors.InvalidArgumentError, match="2"):
        make_table(anonymous=False, shared_name="two dims", dim=3)
    tf.raw_ops.DestroyResourceOp(resource=handle)


def test_shapes_are_inferred():
    graph = tf.Graph()
    with graph.as_default():
        handle = tf.compat.v1.placeholder(tf.resource, [])
        keys = tf.compat.v1.placeholder(tf.int64, [None, 4])
        values, found = find(handle, keys, dim=3)
        exported = library.de_table_export(handle, Tkeys=tf.int64, Tvalues=tf.float32)
        assert values.shape.as_list() == [None, 4, 3]
        assert found.shape.as_list() == [None, 4]
        assert [each.shape.rank for each in exported] == [1, 2]
        assert library.de_shard_of(keys, num_shards=2).shape.as_list() == [None, 4]
        with pytest.raises(ValueError, match=r"must be equal"):
            library.de_table_insert_or_assign(handle, np.arange(3), np.ones([2, 2], np.float32))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda t: find(t, KEYS, dim=3), "rows must be 2 values of float32. Received: 3"),
        (lambda t: find(t, KEYS, dtype=tf.float64), "Received: 2 of float64"),
        (lambda t: find(t, tf.constant([1])), "int64. Received: int32"),
        (lambda t: library.de_table_insert_or_assign(t, KEYS, ROWS[:2]), "keys"),
        (lambda t: library.de_table_insert_or_assign(t, KEYS, tf.ones([3, 3])), "2"),
        (
            lambda t: library.de_table_insert_or_assign(t, KEYS, tf.ones([3, 2], tf.float64)),
            "float",
        ),
        (lambda t: library.de_table_erase(t, ["a"]), "int64. Received: string"),
        (lambda t: library.de_table_reserve(t, tf.constant(-1, tf.int64)), "rows=-1"),
        (
            lambda t: library.de_table_export(t, Tkeys=tf.int64, Tvalues=tf.float32, slot="a/b"),
            "slot must name a slot",
        ),
    ],
)
def test_wrong_arguments_are_named_and_change_nothing(run, table, call, message):
    with pytest.raises(
        (tf.errors.InvalidArgumentError, tf.errors.NotFoundError, ValueError)
    ) as info:
        run(lambda: call(table))
    assert message in str(info.value)
    np.testing.assert_array_equal(find(table, KEYS)[0], ROWS)


def test_a_slot_is_read_and_written_as_the_dtype_that_it_has(make_table):
    table, keys = make_table(), tf.constant([1], tf.int64)
    library.de_table_ensure_slots(table, "de", tf.zeros([1], tf.float64), names=["x"], widths=[1])
    for owner, slot, dtype, own in (
        (table, "de/x", tf.int64, "float"),
        (make_table(policy="ttl_steps=9"), "de/step", tf.float32, "int64"),
    ):
        message = f"'{slot}' must be read and written as {own}.*Received: "
        with pytest.raises(tf.errors.InvalidArgumentError, match=message):
            library.de_table_find_slot(owner, keys, slot, Tvalues=dtype, dim=1)
        with pytest.raises(tf.errors.InvalidArgumentError, match=message):
            library.de_table_assign_slot(owner, keys, tf.zeros([1, 1], dtype), slot)
    with pytest.raises(tf.errors.NotFoundError, match="create it with a policy that keeps"):
        library.de_table_find_slot(table, keys, "de/time", Tvalues=tf.int64, dim=1)
