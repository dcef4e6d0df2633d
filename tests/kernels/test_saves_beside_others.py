"""Tests saves while other threads change a table's slots, and on a disk that cannot sync."""

import errno
import os
import threading

import numpy as np
import pytest
import tensorflow as tf

from de_core.base.ops import library
from de_core.tables.table import apply
from tests.kernels.snapshot_reference_reader import Snapshot
from tests.kernels.test_deltas import put, restore, save

OWNERS = {"adam": 1.0, "lamb": 2.0}


def ensure(table, owner):
    library.de_table_ensure_slots(
        table, owner, tf.constant([OWNERS[owner]], tf.float64), names=["m"], widths=[2]
    )


def test_slots_are_exported_by_their_names_while_they_come_and_go(make_table):
    table = make_table()
    put(table, range(100_000), 1)
    ensure(table, "adam")
    done = threading.Event()

    def change_owners():
        while not done.is_set():
            ensure(table, "lamb")
            library.de_table_drop_slots(table, "adam")
            ensure(table, "adam")
            library.de_table_drop_slots(table, "lamb")

    changing = threading.Thread(target=change_owners)
    changing.start()
    exported = 0
    try:
        while exported < 20:
            try:
                _, slots = library.de_table_export(
                    table, Tkeys=tf.int64, Tvalues=tf.float32, slot="adam/m"
                )
            except tf.errors.NotFoundError:
                continue
            exported += 1
            assert np.unique(slots).tolist() == [OWNERS["adam"]]
    finally:
        done.set()
        changing.join()


def test_lookups_that_count_keep_a_row_alive_in_a_restored_delta(make_table, tmp_path):
    policy = "ttl_steps=3;evict_by=1;max_rows=100;count_reads=1"
    table = make_table(policy=policy)
    read, trained = tf.constant([1], tf.int64), tf.constant([7], tf.int64)
    put(table, [1, 2], 1)
    save(table, tmp_path / "base", chain="c")
    for _ in range(4):
        apply(table, trained, tf.ones([1, 2]), tf.constant([0.1], tf.float64), "o", rule="sgd")
        library.de_table_find(table, read, dim=2, Tvalues=tf.float32)
    report = save(table, tmp_path / "delta", chain="c", delta=True)
    assert (report["rows"], report["tombstones"]) == (2, 1)
    copy = make_table(policy=policy)
    restore(copy, [tmp_path / "base", tmp_path / "delta"])
    found = library.de_table_contains(copy, tf.constant([1, 2, 7], tf.int64))
    assert found.numpy().tolist() == [True, False, True]
    assert sorted(Snapshot(tmp_path / "delta").rows()) == [1, 7]


def save_twice(path):
    table = library.de_table(anonymous=True, key_dtype=tf.int64, value_dtype=tf.float32, dim=2)
    library.de_table_insert_or_assign(table, tf.constant([1, 2], tf.int64), tf.ones([2, 2]))
    try:
        library.de_table_save(table, path, chain="c")
        print("saved")
    except tf.errors.OpError as error:
        print(type(error).__name__, error.message)
    try:
        library.de_table_save(table, path, chain="c", delta=True)
        print("followed")
    except tf.errors.FailedPreconditionError:
        print("no base")


@pytest.mark.parametrize("code", [errno.EIO, errno.EINVAL])
def test_a_folder_that_cannot_be_synced_fails_the_save(code, in_shims, tmp_path):
    told = in_shims(save_twice, tmp_path / "rows.de", FOLDER_SYNC_ERRNO=str(code)).splitlines()
    if code == errno.EINVAL:  # the file system cannot sync folders
        assert told == ["saved", "followed"]
    else:
        assert f"cannot sync the folder {tmp_path}" in told[0]
        assert os.strerror(code) in told[0]
        assert told[1] == "no base"
