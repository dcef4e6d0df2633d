"""Disks that fail under a table: one clear error, no lost and no wrong row."""

import shutil
import subprocess

import numpy as np
import pytest
import tensorflow as tf

import de_core as de
from tests.support.small_disk import needs_mounts, small_disk

DIM, COUNT = 8, 500


def table_in(folder):
    return de.Variable(dim=DIM, name="t", tier=de.DiskTier(str(folder), memory_bytes=2000))


def rows_of(keys):
    return np.repeat(np.asarray(keys, np.float32)[:, None], DIM, 1)


def fill(table, begin, end):
    table.upsert(np.arange(begin, end), rows_of(range(begin, end)))


def fill_until_it_fails(table):
    for begin in range(int(table.size()), 100_000, 10):
        fill(table, begin, begin + 10)


def assert_holds(table, count):
    np.testing.assert_array_equal(table.lookup(range(count)), rows_of(range(count)))
    assert int(table.size()) == count


def files_of(folder):
    return [path for path in folder.rglob("rows-*") if path.is_file()]


@pytest.fixture
def one_mib(tmp_path):
    """A file system of 1 MiB in memory, and a function that makes it larger."""
    with small_disk(tmp_path / "small", "1m") as folder:
        enlarge = ["mount", "-o", "remount,size=64m", str(folder)]
        yield folder, lambda: subprocess.run(enlarge, check=True)


@needs_mounts
def test_a_full_disk_loses_no_row(one_mib):
    folder, enlarge = one_mib
    table = table_in(folder)
    with pytest.raises(tf.errors.ResourceExhaustedError, match=r"Received: .*Free space"):
        fill_until_it_fails(table)
    written = int(table.size())
    assert written > COUNT
    assert_holds(table, written)
    with pytest.raises(tf.errors.ResourceExhaustedError, match="Free space"):
        fill_until_it_fails(table)
    assert_holds(table, written)
    enlarge()
    fill(table, written, 2 * written)
    assert_holds(table, 2 * written)


def test_a_damaged_file_is_an_error_and_never_a_wrong_row(tmp_path):
    table = table_in(tmp_path / "tier")
    for begin in range(0, COUNT, 50):
        fill(table, begin, begin + 50)
    path = str(tmp_path / "checkpoint")
    tf.train.Checkpoint(table=table).write(path)
    (file,) = files_of(tmp_path / "tier")
    with file.open("r+b") as opened:  # one byte in each block
        for offset in range(0, file.stat().st_size, 4096):
            opened.seek(offset + 100)
            byte = opened.read(1)[0]
            opened.seek(offset + 100)
            opened.write(bytes([byte ^ 0xFF]))
    damaged, messages = [], []
    for key in range(COUNT):
        try:
            row = table.lookup([key])
        except tf.errors.DataLossError as error:
            damaged.append(key)
            messages.append(str(error))
            continue
        np.testing.assert_array_equal(row, rows_of([key]))
    assert 0 < len(damaged) < COUNT
    assert all(file.name in message for message in messages)
    with pytest.raises(tf.errors.DataLossError, match="checkpoint"):
        table.accum(damaged[:1], tf.zeros([1, DIM]), tf.ones([1, DIM]))
    with pytest.raises(tf.errors.DataLossError, match="checksum"):
        table.export()
    tf.train.Checkpoint(table=table).read(path).assert_consumed()
    assert_holds(table, COUNT)
    fill(table, COUNT, 2 * COUNT)
    assert_holds(table, 2 * COUNT)


def test_a_truncated_file_is_an_error(tmp_path):
    table = table_in(tmp_path)
    for begin in range(0, COUNT, 50):
        fill(table, begin, begin + 50)
    (file,) = files_of(tmp_path)
    with file.open("r+b") as opened:
        opened.truncate(4096)
    with pytest.raises(tf.errors.InternalError, match=rf"Received: .*{file.name}"):
        table.lookup(range(COUNT))


def test_a_folder_that_vanishes_is_an_error_until_it_is_back(tmp_path):
    table = table_in(tmp_path / "tier")
    fill(table, 0, 10)
    (lock,) = (tmp_path / "tier").rglob("lock")
    shutil.rmtree(tmp_path / "tier")
    with pytest.raises(tf.errors.NotFoundError, match=r"Received: .*rows-.*[Cc]reate the folder"):
        fill_until_it_fails(table)
    held = int(table.size())
    assert_holds(table, held)
    lock.parent.mkdir(parents=True)
    fill(table, held, held + COUNT)
    assert_holds(table, held + COUNT)
