"""Tests what a read-only table over a file refuses."""

import pytest
import tensorflow as tf

from de_core.base.ops import library

KEYS = tf.range(-50, 50, dtype=tf.int64)
ROWS = tf.reshape(tf.range(200.0), [100, 2])


def frozen(name):
    return library.de_frozen_table(
        shared_name=name, key_dtype=tf.int64, value_dtype=tf.float32, dim=2
    )


def test_it_cannot_be_written(run, make_table, tmp_path):
    table, path = make_table(), str(tmp_path / "table.de")
    library.de_table_insert_or_assign(table, KEYS, ROWS)
    library.de_table_save(table, path)
    handle = frozen("frozen in a test")
    library.de_frozen_table_open(handle, path)
    with pytest.raises(tf.errors.OpError, match=r"frozen|read-only"):
        run(lambda: library.de_table_insert_or_assign(handle, KEYS, ROWS))
    with pytest.raises(tf.errors.OpError, match=r"frozen|read-only"):
        library.de_table_clear(handle)
    assert int(library.de_table_size(handle)) == 100
    library.de_frozen_table_close(handle)


def test_it_answers_nothing_before_it_is_opened():
    with pytest.raises(tf.errors.FailedPreconditionError):
        library.de_table_find(frozen("never opened"), KEYS, Tvalues=tf.float32, dim=2)
