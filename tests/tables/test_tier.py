"""Tables whose rows are partly on disk: training, files, errors. Their memory holds a few rows.

If the disk fails, there is one clear error, no lost row and no wrong row.
"""

import gc
import shutil
import subprocess

import keras
import numpy as np
import pytest
import tensorflow as tf

import de_core as de
from tests.support import oracle
from tests.support.models import served
from tests.support.small_disk import needs_mounts, small_disk


def tier_in(folder):
    return de.DiskTier(str(folder), memory_bytes=300)  # a few rows


def filled(folder, **arguments):
    table = de.Variable(dim=4, tier=tier_in(folder), **arguments)
    table.upsert(tf.range(500, dtype=tf.int64), tf.random.stateless_normal([500, 4], [1, 2]))
    return table


@pytest.mark.each_choice
@pytest.mark.parametrize("optimizer", ["adam", "ftrl"])
@pytest.mark.parametrize(
    "how", [{}, {"key_dtype": tf.string}, {"mode": "fit"}, {"mode": "fit", "shards": 3}], ids=str
)
def test_training_equals_training_of_dense_variables(optimizer, how, tmp_path):
    oracle.check(lambda: keras.optimizers.get(optimizer), tier=tier_in(tmp_path), **how)


def test_stats_tell_where_rows_are(tmp_path):
    table = filled(tmp_path, devices=["/CPU:0"] * 2)
    table.upsert([1], [[1.0] * 4])
    assert table.lookup(range(500)).shape == [500, 4]
    tier = table.stats()["tier"]
    assert tier["hot_rows"] + tier["cold_rows"] == int(table.size()) == 500
    assert tier["hot_rows"] < 20
    assert tier["rows_out"] > 400
    assert tier["disk_bytes"] > 500 * 16
    assert tier["reads"] > 0
    assert tier["filter_bytes"] > 0


def test_checkpoints_and_exports_hold_all_rows(tmp_path):
    table = filled(tmp_path, name="saved")
    keys = tf.range(600, dtype=tf.int64)  # the last 100 have no row
    expected = table.lookup(keys).numpy()
    path = str(tmp_path / "checkpoint")
    tf.train.Checkpoint(table=table).write(path)
    in_memory = de.Variable(dim=4)
    other_tier = de.Variable(dim=4, name="other", tier=tier_in(tmp_path))
    for restored in (in_memory, other_tier):
        tf.train.Checkpoint(table=restored).read(path).assert_consumed()
        np.testing.assert_array_equal(restored.lookup(keys), expected)
        assert int(restored.size()) == 500
    other_tier.upsert([599], [[7.0] * 4])  # loads the rows of the file
    np.testing.assert_array_equal(other_tier.lookup(keys[:500]), expected[:500])
    assert int(other_tier.size()) == 501

    model = keras.Sequential([keras.Input([], dtype="int64"), table])
    version = de.export(model, str(tmp_path / "export"))
    np.testing.assert_array_equal(served(version, inputs=keys), expected)


def test_a_restriction_ranks_rows_on_disk_too(tmp_path):
    table = filled(tmp_path, restrict_policy=de.FrequencyRestrictPolicy)
    for _ in range(3):
        table.accum(range(40), tf.zeros([40, 4]), tf.ones([40, 4]))
    table.restrict(40)
    assert sorted(table.export()[0].numpy()) == list(range(40))


def test_a_folder_is_used_by_one_table_at_a_time(tmp_path):
    table = filled(tmp_path, name="mine")
    with pytest.raises(tf.errors.FailedPreconditionError, match="directory"):
        filled(tmp_path, name="mine")
    del table
    gc.collect()
    assert int(filled(tmp_path, name="mine").size()) == 500


def test_a_folder_that_cannot_be_created_is_an_error(tmp_path):
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"Received: .*file"):
        filled(tmp_path / "file")


def test_tables_are_shared_only_with_the_same_tier(tmp_path):
    table = de.get_variable("tiered", dim=4, tier=tier_in(tmp_path))
    assert de.get_variable("tiered", dim=4, tier=tier_in(tmp_path)) is table
    with pytest.raises(ValueError, match="tier="):
        de.get_variable("tiered", dim=4)


def test_a_config_of_a_table_takes_a_tier(tmp_path):
    items = de.TableConfig("items", 4, tier=tier_in(tmp_path))
    layer = de.layers.EmbeddingCollection({"item": de.FeatureConfig("item", items)})
    assert layer({"item": tf.range(3)})["item"].shape == [3, 4]
    config = layer.get_config()
    del layer, items
    gc.collect()  # two live tables cannot use one folder
    copy = de.layers.EmbeddingCollection.from_config(config)
    assert copy({"item": tf.range(5)})["item"].shape == [5, 4]


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"tier": "folder"}, TypeError),
        ({"value_dtype": tf.string}, NotImplementedError),
        ({"eviction": de.EvictionLRU(max_rows=10)}, NotImplementedError),
        ({"devices": ["/job:ps/task:0"]}, ValueError),
    ],
)
def test_an_argument_that_a_tier_does_not_support_is_an_error(arguments, error, tmp_path):
    with pytest.raises(error, match=r"tier.*Received: "):
        de.Variable(**{"dim": 4, "tier": tier_in(tmp_path), **arguments})


@pytest.mark.parametrize(
    ("path", "memory_bytes", "error"),
    [
        (5, 100, TypeError),
        ("", 100, ValueError),
        ("gs://bucket", 100, ValueError),
        ("folder", 0, ValueError),
        ("folder", 1.5, TypeError),
        ("folder", None, TypeError),
    ],
)
def test_bad_settings_of_a_tier_are_errors(path, memory_bytes, error):
    with pytest.raises(error, match="Received: "):
        de.DiskTier(path, memory_bytes=memory_bytes)


def test_a_consistent_save_is_refused(tmp_path):
    table = filled(tmp_path)
    with pytest.raises(tf.errors.FailedPreconditionError, match="consistent"):
        de.checkpoint.save(table, str(tmp_path / "saved"), consistent=True)


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
