"""Prefetching reads rows from the disk ahead, and changes no number."""

import collections

import keras
import numpy as np
import pytest
import tensorflow as tf

import de_core as de

COUNT, BATCH = 3000, 50


def trained(table, prefetched):
    """Trains an epoch over ids in a fixed order."""
    ids = np.random.default_rng(1).permutation(COUNT)
    dataset = tf.data.Dataset.from_tensor_slices((ids, np.ones([COUNT, 1], np.float32)))
    dataset = dataset.batch(BATCH)
    if prefetched:
        dataset = dataset.apply(de.prefetch_rows(table, lambda ids, _labels: ids))
    keras.utils.set_random_seed(1)
    model = keras.Sequential([keras.Input([], dtype="int64"), table, keras.layers.Dense(1)])
    model.compile("adam", "mse")
    model.fit(dataset, epochs=2, shuffle=False, verbose=0)
    return table.lookup(range(COUNT)).numpy()


def test_training_is_the_same_with_and_without(tmp_path):
    rows = []
    for prefetched in (False, True):
        tier = de.DiskTier(str(tmp_path / str(prefetched)), memory_bytes=100_000)
        table = de.Variable(dim=8, name="t", tier=tier, optimizer="adam", initializer="uniform")
        rows.append(trained(table, prefetched))
        assert table.stats()["tier"]["rows_in"] > 1000
    np.testing.assert_array_equal(*rows)


def test_bad_arguments_are_errors():
    for wrong in (None, de.layers.Embedding(2)):
        with pytest.raises(TypeError, match=r"must be a de\.Variable"):
            de.prefetch_rows(wrong, lambda ids: ids)
    with pytest.raises(ValueError, match="Received: batches=0"):
        de.prefetch_rows(de.Variable(dim=2), lambda ids: ids, batches=0)


def test_the_rows_of_a_prefetched_batch_need_no_read(tmp_path):
    tier = de.DiskTier(str(tmp_path), memory_bytes=100_000)
    table = de.Variable(dim=8, tier=tier)
    table.upsert(range(COUNT), tf.ones([COUNT, 8]))
    for begin in range(0, COUNT, 100):  # most rows are on the disk
        table.upsert(range(begin, begin + 100), tf.ones([100, 8]))
    ids = tf.data.Dataset.from_tensors({"id": tf.range(BATCH, dtype=tf.int64)})
    list(ids.apply(de.prefetch_rows(table, lambda batch: batch["id"])))
    before = table.stats()["tier"]["reads"]
    assert before > 0
    table.accum(range(BATCH), tf.zeros([BATCH, 8]), tf.ones([BATCH, 8]))
    assert table.stats()["tier"]["reads"] == before
    assert table.stats()["tier"]["rows_in"] > 0


def test_a_table_in_memory_leaves_the_dataset_unchanged():
    dataset = tf.data.Dataset.range(3)
    assert dataset.apply(de.prefetch_rows(de.Variable(dim=2), lambda ids: ids)) is dataset


Pair = collections.namedtuple("Pair", ["ids", "labels"])


@pytest.mark.parametrize("pack", [lambda a, _: (a,), lambda a, b: {"ids": a, "b": b}, Pair])
def test_the_elements_stay_as_they_are(tmp_path, pack):
    table = de.Variable(dim=2, tier=de.DiskTier(str(tmp_path), memory_bytes=1 << 20))
    dataset = tf.data.Dataset.from_tensors(pack(tf.constant([1, 2], tf.int64), [0.0, 1.0]))

    def ids_of(first, *_):
        if isinstance(first, Pair):
            return first.ids
        return first["ids"] if isinstance(first, dict) else first

    assert dataset.apply(de.prefetch_rows(table, ids_of)).element_spec == dataset.element_spec
