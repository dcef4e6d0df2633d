"""Tests values stored as another dtype, and what saves and restores of a part refuse."""

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


def test_a_slot_that_the_table_lacks_keeps_no_rows(table, tmp_path):
    with pytest.raises(tf.errors.NotFoundError, match="must name slots of the table"):
        save(table, tmp_path / "b.de", keep_slots=["o", "x"], keep_at_least=["1"])
    assert not (tmp_path / "b.de").exists()


def test_sections_to_read_must_be_those_of_the_file(table, tmp_path):
    path = str(tmp_path / "a.de")
    save(table, path)
    with pytest.raises(tf.errors.InvalidArgumentError, match="name sections of the file"):
        library.de_snapshot_read(path, 0, 10**6, key_dtype=tf.int64, value_dtype=tf.float32)
