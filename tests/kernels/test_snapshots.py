"""Tests the ops that write tables to files, read them back, and serve them."""

import json
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from de_core.base.ops import library

KEYS = tf.range(-50, 50, dtype=tf.int64)
ROWS = tf.reshape(tf.range(200.0), [100, 2])


@pytest.fixture
def table(make_table):
    handle = make_table(initializer="normal", init_args=[0.0, 1.0], init_seed=5)
    library.de_table_insert_or_assign(handle, KEYS, ROWS)
    library.de_table_apply(
        handle,
        KEYS[:1],
        tf.ones([1, 2]),
        tf.constant([0.1, 0.9, 0.0], tf.float64),
        "o",
        rule="momentum",
    )
    return handle


@pytest.fixture
def file(tmp_path, table):
    path = str(tmp_path / "table.de")
    library.de_table_save(table, path)
    return path


def contents(table, slot=""):
    keys, values = library.de_table_export(table, Tkeys=tf.int64, Tvalues=tf.float32, slot=slot)
    return dict(zip(keys.numpy().tolist(), values.numpy().tolist(), strict=True))


def test_a_restored_table_is_the_saved_one(run, make_table, table, tmp_path):
    path = str(tmp_path / "new.de")
    run(lambda: library.de_table_save(table, path))
    other = make_table()
    library.de_table_insert_or_assign(other, tf.constant([10**6], tf.int64), [[1.0, 1.0]])
    run(lambda: library.de_table_restore(other, path))
    assert contents(other) == contents(table)
    assert contents(other, "o/momentum") == contents(table, "o/momentum")


def test_a_restored_table_reads_new_keys_as_the_saved_one_did(make_table, table, file):
    other = make_table(initializer="normal", init_args=[0.0, 1.0], init_seed=6)
    library.de_table_restore(other, file)
    new = tf.range(1000, 1010, dtype=tf.int64)
    np.testing.assert_array_equal(
        library.de_table_find(other, new, Tvalues=tf.float32, dim=2)[0],
        library.de_table_find(table, new, Tvalues=tf.float32, dim=2)[0],
    )


def test_restoring_can_keep_the_rows_that_are_there(make_table, table, file):
    other = make_table()
    library.de_table_insert_or_assign(
        other, tf.constant([0, 10**6], tf.int64), [[1.0, 1.0], [2.0, 2.0]]
    )
    library.de_table_restore(other, file, replace=False)
    assert contents(other) == {**contents(table), 10**6: [2.0, 2.0]}


def test_values_only_leaves_the_slots_out(make_table, table, tmp_path):
    path = str(tmp_path / "values.de")
    library.de_table_save(table, path, values_only=True)
    other = make_table()
    library.de_table_restore(other, path)
    assert contents(other) == contents(table)
    with pytest.raises(tf.errors.NotFoundError, match="slot must name"):
        contents(other, "o/momentum")


@pytest.mark.parametrize("damage", ["truncate", "flip", "empty", "other"])
def test_a_damaged_file_is_named_and_changes_nothing(run, table, file, damage, tmp_path):
    path = tmp_path / "damaged.de"
    data = bytearray(Path(file).read_bytes())
    if damage == "flip":
        data[len(data) // 2] ^= 1
    path.write_bytes(
        {"truncate": data[:-100], "empty": b"", "other": b"x" * 5000}.get(damage, data)
    )
    before = contents(table)
    with pytest.raises((tf.errors.DataLossError, tf.errors.InvalidArgumentError)) as info:
        run(lambda: library.de_table_restore(table, str(path)))
    assert "damaged.de" in str(info.value)
    assert contents(table) == before


@pytest.mark.parametrize(
    "attributes", [{"dim": 3}, {"key_dtype": tf.string}, {"value_dtype": tf.float64}]
)
def test_a_file_of_another_kind_of_table_is_refused(make_table, file, attributes):
    with pytest.raises(tf.errors.InvalidArgumentError, match="Received"):
        library.de_table_restore(make_table(**attributes), file)


def test_a_missing_file_is_named(table, tmp_path):
    with pytest.raises(tf.errors.NotFoundError, match=r"missing\.de"):
        library.de_table_restore(table, str(tmp_path / "missing.de"))


def test_saving_where_nothing_can_be_written_leaves_the_old_file(table, tmp_path):
    with pytest.raises(tf.errors.OpError):
        library.de_table_save(table, str(tmp_path / "no" / "such" / "folder.de"))


def test_no_temporary_file_stays_behind(table, tmp_path):
    library.de_table_save(table, str(tmp_path / "a.de"))
    assert [each.name for each in tmp_path.iterdir()] == ["a.de"]


class TestFrozen:
    @pytest.fixture
    def frozen(self, file):
        handle = library.de_frozen_table(
            shared_name="frozen in a test", key_dtype=tf.int64, value_dtype=tf.float32, dim=2
        )
        library.de_frozen_table_open(handle, file)
        yield handle
        library.de_frozen_table_close(handle)

    def test_it_reads_known_and_unknown_keys_as_the_live_table(self, run, table, frozen):
        keys = tf.range(-100, 100, dtype=tf.int64)
        live = library.de_table_find(table, keys, Tvalues=tf.float32, dim=2)
        values, found = run(
            lambda k: tuple(library.de_table_find(frozen, k, Tvalues=tf.float32, dim=2)), keys
        )
        np.testing.assert_array_equal(values, live.values)
        np.testing.assert_array_equal(found, live.found)

    def test_it_knows_its_size(self, run, frozen):
        assert int(run(lambda: library.de_table_size(frozen))) == 100
        assert json.loads(library.de_table_stats(frozen).numpy())["rows"] == 100

    def test_it_cannot_be_written(self, run, frozen):
        with pytest.raises(tf.errors.OpError, match=r"frozen|read-only"):
            run(lambda: library.de_table_insert_or_assign(frozen, KEYS, ROWS))
        with pytest.raises(tf.errors.OpError, match=r"frozen|read-only"):
            library.de_table_clear(frozen)

    def test_it_answers_nothing_before_it_is_opened(self):
        handle = library.de_frozen_table(
            shared_name="never opened", key_dtype=tf.int64, value_dtype=tf.float32, dim=2
        )
        with pytest.raises(tf.errors.FailedPreconditionError):
            library.de_table_find(handle, KEYS, Tvalues=tf.float32, dim=2)
