"""Numbers beyond the limits of tensors, batches or tables raise errors and do not crash."""

import mmap

import numpy as np
import pytest
import tensorflow as tf

import de_core as de
from de_core.base.ops import library
from de_core.lookup.pooling import pooled_sums
from de_core.tables.table import apply
from tests.support.applies import applies_if

TOO_MANY = 2**31
REFUSED = r"at most 2\^31 - 1 keys.* Received: 2147483648 keys"


@pytest.fixture(scope="module")
def too_many_keys():
    """Returns 2^31 int32 keys in untouched memory."""
    keys = tf.raw_ops.Empty(shape=[2**16, 2**15], dtype=tf.int32, init=False)
    return tf.reshape(keys, tf.constant([TOO_MANY], tf.int64))


ROW = tf.zeros([1, 2])
VERBS = {
    "find": lambda t, keys: library.de_table_find(t, keys, Tvalues=tf.float32, dim=2),
    "find_or_insert": lambda t, keys: library.de_table_find_or_insert(
        t, keys, Tvalues=tf.float32, dim=2
    ),
    "contains": library.de_table_contains,
    "insert_or_assign": lambda t, keys: library.de_table_insert_or_assign(t, keys, ROW),
    "accum": lambda t, keys: library.de_table_accum(t, keys, ROW, ROW),
    "apply": lambda t, keys: apply(
        t, keys, ROW, tf.constant([0.1], tf.float64), "owner", rule="sgd"
    ),
    "erase": library.de_table_erase,
    "touch": library.de_table_touch,
    "find_slot": lambda t, keys: library.de_table_find_slot(
        t, keys, "owner/slot", Tvalues=tf.float32, dim=2
    ),
    "assign_slot": lambda t, keys: library.de_table_assign_slot(t, keys, ROW, "owner/slot"),
    "pool": lambda t, keys: pooled_sums(
        t, keys, tf.constant([0, TOO_MANY], tf.int64), [], [], value_dtype=tf.float32, dim=2
    ),
    "shard_of": lambda _, keys: library.de_shard_of(keys, num_shards=2),
}  # fmt: skip


def has_address_space():
    try:
        mmap.mmap(-1, 4 * TOO_MANY, flags=mmap.MAP_PRIVATE).close()
    except OSError:
        return False
    return True


@applies_if(has_address_space(), "8 GiB of address space")
@pytest.mark.parametrize("verb", VERBS)
def test_a_batch_of_2_to_the_31_keys_is_refused_before_it_is_read(make_table, too_many_keys, verb):
    table = make_table(key_dtype=tf.int32)
    with pytest.raises(tf.errors.InvalidArgumentError, match=REFUSED):
        VERBS[verb](table, too_many_keys)


@pytest.mark.parametrize("is_sorted", [False, True])
def test_segments_without_memory_or_a_shape_are_an_error(is_sorted):
    ids = tf.constant([0], tf.int64)
    for segments in (-1, 2**59, 2**62, 2**63 - 1):
        with pytest.raises(tf.errors.InvalidArgumentError, match=f"must be from 0.*={segments}"):
            library.de_segment_order(ids, segments, sorted=is_sorted)
    with pytest.raises(tf.errors.ResourceExhaustedError):
        library.de_segment_order(ids, 2**40, sorted=is_sorted)


@pytest.mark.parametrize("is_sorted", [False, True])
def test_ids_beyond_the_segments_are_an_error(is_sorted):
    for ids in ([2], [0, 1, 2], [1, 3]):
        with pytest.raises(tf.errors.InvalidArgumentError, match=f"Received: .*{ids[-1]}"):
            library.de_segment_order(ids, 2, sorted=is_sorted)


def test_a_sparse_tensor_of_a_shape_too_large_is_an_error():
    table = de.Variable(dim=2)
    ids = tf.SparseTensor([[0, 0]], tf.constant([5], tf.int64), [2**62, 1])
    with pytest.raises((tf.errors.InvalidArgumentError, tf.errors.ResourceExhaustedError)):
        de.embedding_lookup_sparse(table, ids, None)


@pytest.mark.parametrize("rows", [int(3.2e13), 2**63 - 1])
def test_room_for_more_rows_than_a_table_holds_is_refused(rows):
    table = de.Variable(dim=2)
    table.upsert([1, 2], tf.ones([2, 2]))
    refused = rf"a table must hold at most .* rows.* Received: rows={rows}"
    with pytest.raises(tf.errors.InvalidArgumentError, match=refused):
        table.reserve(rows)
    with pytest.raises(tf.errors.InvalidArgumentError, match=refused):
        de.Variable(dim=2, init_size=rows)
    np.testing.assert_array_equal(table.lookup([1, 2]), np.ones([2, 2]))
