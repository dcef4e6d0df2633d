"""Tests values stored as another dtype, rows selected by slots or keys, consistent saves."""

import json
import threading

import numpy as np
import pytest
import tensorflow as tf

from de_core.base.ops import library
from tests.kernels.snapshot_reference_reader import Snapshot
from tests.kernels.test_deltas import save

KEYS = tf.range(500, dtype=tf.int64)
VALUES = tf.random.stateless_normal([500, 8], seed=[1, 2]) * 3


@pytest.fixture
def table(make_table):
    handle = make_table(dim=8)
    library.de_table_insert_or_assign(handle, KEYS, VALUES)
    return handle


def find(handle, keys=KEYS, dim=8, dtype=tf.float32):
    return library.de_table_find(handle, keys, Tvalues=dtype, dim=dim)[0].numpy()


def stored(dtype, values):
    """Returns `values` as they are after a file stored them in `dtype`."""
    if dtype == "int8":
        scale = np.abs(values).max(axis=1, keepdims=True) / np.float32(127)
        return (np.rint(values / scale) * scale).astype(np.float32)
    return tf.cast(tf.cast(values, dtype), tf.float32).numpy()


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "int8"])
def test_stored_values_are_served_and_restored_as_the_models_dtype(
    make_table, table, tmp_path, dtype
):
    path = tmp_path / "small.de"
    report = save(table, path, store_as=dtype, values_only=True)
    expected = stored(dtype, VALUES.numpy())
    off = np.abs(expected - VALUES.numpy())
    np.testing.assert_allclose(report["max_error"], off.max(), rtol=1e-5)
    np.testing.assert_allclose(report["mean_error"], off.mean(), rtol=1e-4)
    frozen = library.de_frozen_table(
        shared_name=f"stored_{dtype}", key_dtype=tf.int64, value_dtype=tf.float32, dim=8
    )
    library.de_frozen_table_open(frozen, str(path))
    np.testing.assert_array_equal(find(frozen), expected)
    library.de_frozen_table_close(frozen)
    second = Snapshot(path)
    for key in (0, 77, 499):
        np.testing.assert_array_equal(second.find(key), expected[key])
    other = make_table(dim=8)
    if dtype != "float32":
        with pytest.raises(tf.errors.InvalidArgumentError, match="set convert to convert"):
            library.de_table_restore(other, str(path))
    library.de_table_restore(other, str(path), convert=True)
    np.testing.assert_array_equal(find(other), expected)
    size = {"float32": 4, "float16": 2, "bfloat16": 2, "int8": 1}[dtype]
    # The rest of the file's size: the index, a scale per row, and the ends of 16 sections.
    assert report["bytes"] < 500 * (8 * size + 19 + 4) + 16 * 192 + 1024


@pytest.mark.parametrize(("source", "target"), [("float32", "bfloat16"), ("half", "float32")])
def test_rows_restore_into_another_dtype_with_their_slots(make_table, tmp_path, source, target):
    source, target = tf.as_dtype(source), tf.as_dtype(target)
    table = make_table(dim=8, value_dtype=source)
    library.de_table_insert_or_assign(table, KEYS, tf.cast(VALUES, source))
    hyper = tf.constant([0.1, 0.9, 0.0], tf.float64)
    library.de_table_apply(table, KEYS[:9], tf.ones([9, 8]), hyper, "o", rule="momentum")
    save(table, tmp_path / "a.de")
    other = make_table(dim=8, value_dtype=target)
    library.de_table_restore(other, str(tmp_path / "a.de"), convert=True)
    expected = tf.cast(tf.cast(find(table, dtype=source), tf.float32), target).numpy()
    np.testing.assert_array_equal(find(other, dtype=target), expected)
    export = dict(Tkeys=tf.int64, Tvalues=tf.float32, slot="o/momentum")
    slots = [library.de_table_export(each, **export) for each in (table, other)]
    by_key = [dict(zip(k.numpy(), v.numpy().tolist(), strict=True)) for k, v in slots]
    assert by_key[0] == by_key[1]


def test_rows_are_kept_by_their_slots_or_by_their_keys(table, tmp_path):
    hyper = tf.constant([1.0, 0.9, 0.0], tf.float64)
    grads = -tf.repeat(tf.range(100.0)[:, None], 8, axis=1)
    library.de_table_apply(table, KEYS[:100], grads, hyper, "o", rule="momentum")
    keep = {"keep_slots": ["o", "momentum"], "keep_at_least": ["60"]}
    assert save(table, tmp_path / "a.de", **keep)["rows"] == 40
    assert set(Snapshot(tmp_path / "a.de").rows()) == set(range(60, 100))
    with pytest.raises(tf.errors.NotFoundError, match="must name slots of the table"):
        save(table, tmp_path / "b.de", keep_slots=["o", "x"], keep_at_least=["1"])
    chosen = tf.constant([3, 5, 5, 10**9], tf.int64)
    library.de_table_save_keys(table, str(tmp_path / "c.de"), chosen)
    assert set(Snapshot(tmp_path / "c.de").rows()) == {3, 5}
    assert not (tmp_path / "b.de").exists()


def test_parts_of_a_file_are_read_and_applied_by_a_mask(make_table, table, tmp_path):
    path = str(tmp_path / "a.de")
    save(table, path)
    sections = json.loads(library.de_snapshot_info(path).numpy())["sections"]
    keys, deleted, values, slots = library.de_snapshot_read(
        path, 0, sections, key_dtype=tf.int64, value_dtype=tf.float32
    )
    assert not tf.reduce_any(deleted)
    assert slots.shape == [500, 0]
    np.testing.assert_array_equal(values, tf.gather(VALUES, keys))
    other = make_table(dim=8)
    library.de_table_restore_part(other, path, 0, sections, keys % 3 == 0)
    found = library.de_table_contains(other, KEYS)
    np.testing.assert_array_equal(found, KEYS.numpy() % 3 == 0)
    with pytest.raises(tf.errors.InvalidArgumentError, match="mask must have one element"):
        library.de_table_restore_part(other, path, 0, 1, tf.fill([3], True))
    with pytest.raises(tf.errors.InvalidArgumentError, match="name sections of the file"):
        library.de_table_restore_part(other, path, 0, 10**6, keys % 3 == 0)


def test_a_consistent_save_is_of_one_moment(make_table, tmp_path):
    """Every step writes one number to all rows. A consistent save contains only one number."""
    rows = 60_000
    table = make_table(dim=4)
    keys = tf.range(rows, dtype=tf.int64)
    put = library.de_table_insert_or_assign
    put(table, keys, tf.zeros([rows, 4]))
    stop = threading.Event()

    def train():
        step = 0
        while not stop.is_set():
            step += 1
            put(table, keys, tf.fill([rows, 4], float(step)))
            if step % 3 == 0:
                gone = tf.range(step % 1000, rows, 1000, dtype=tf.int64)
                library.de_table_erase(table, gone)
                put(table, gone, tf.fill([len(gone), 4], float(step)))

    def save_often(**options):
        for _ in range(50):
            save(table, tmp_path / "small.de", **options)

    trainer = threading.Thread(target=train)
    trainer.start()
    try:
        reports = [save(table, tmp_path / f"{i}.de", consistent=True) for i in range(4)]
        with pytest.raises(tf.errors.ResourceExhaustedError, match="consistent_bytes"):
            save_often(consistent=True, consistent_bytes=100)
    finally:
        stop.set()
        trainer.join()
    assert not list(tmp_path.glob("small.de.tmp*"))
    assert any(each["copied_bytes"] > 0 for each in reports)
    for i in range(4):
        other = make_table(dim=4)
        library.de_table_restore(other, str(tmp_path / f"{i}.de"))
        values = find(other, keys, 4)
        # Between an erase and the later insert, the rows are missing.
        there = library.de_table_contains(other, keys).numpy()
        assert len(np.unique(values[there])) == 1
        assert there.sum() >= rows - rows // 1000
