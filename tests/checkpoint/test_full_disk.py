"""A save on a full disk raises, keeps earlier saves, and leaves no new files."""

import tempfile

import keras
import numpy as np
import pytest
import tensorflow as tf

import de_core as de
from tests.support.small_disk import needs_mounts, small_disk

FULL = r"[Nn]o space left|exhausted"
FEW, MANY = 20000, 40000
pytestmark = needs_mounts


@pytest.fixture
def two_mib(tmp_path, monkeypatch):
    """A file system of 2 MiB in memory. Temporary files go elsewhere."""
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    with small_disk(tmp_path / "small", "2m") as folder:
        yield folder
    assert list(temporary.glob("de_core*")) == []


def fill(table, rows, value):
    """Writes rows; in a graph it returns an op."""
    return table.upsert(np.arange(rows), np.full([rows, 8], value, np.float32))


def files_in(folder):
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def assert_holds(restore):
    """Checks that `restore` restores the table as it was before the disk was full."""
    other = de.Variable(dim=8, name="t")
    restore(other)
    assert int(other.size()) == FEW
    np.testing.assert_array_equal(other.lookup([7, FEW - 1]), np.ones([2, 8]))


def entry_points(owner, table, folder):
    """Returns functions that save a module's table, and functions that restore it into another."""
    manager = de.checkpoint.Manager(owner, folder)
    tensorflow = tf.train.CheckpointManager(tf.train.Checkpoint(target=owner), folder, 5)
    restore = lambda other: de.checkpoint.restore(other, folder)  # noqa: E731
    return {
        "tables": (lambda: de.checkpoint.save(table, folder), restore),
        "manager": (manager.save, restore),
        "tensorflow": (tensorflow.save, restore),
        "file system": (
            lambda: table.save_to_file_system(str(folder)),
            lambda other: other.load_from_file_system(str(folder)),
        ),
    }


@pytest.mark.parametrize("shards", [1, 2])
@pytest.mark.parametrize("entry_point", ["tables", "manager", "tensorflow", "file system"])
def test_a_full_disk_keeps_earlier_saves(two_mib, entry_point, shards):
    owner = tf.Module()
    owner.table = de.Variable(dim=8, name="t", devices=["/CPU:0"] * shards)
    fill(owner.table, FEW, 1.0)
    save, restore = entry_points(owner, owner.table, two_mib)[entry_point]
    save()
    before = files_in(two_mib)
    fill(owner.table, MANY, 2.0)
    for _ in range(2):
        with pytest.raises(tf.errors.OpError, match=FULL):
            save()
        assert files_in(two_mib) == before
        assert_holds(restore)
    # With free space again the next save writes everything.
    owner.table.remove(np.arange(1000, MANY))
    save()
    other = de.Variable(dim=8, name="t")
    restore(other)
    assert int(other.size()) == 1000
    np.testing.assert_array_equal(other.lookup([7]), np.full([1, 8], 2.0))


def test_a_restore_that_fills_the_disk_of_a_tier(two_mib, tmp_path):
    table = de.Variable(dim=8, name="t")
    fill(table, MANY, 2.0)
    de.checkpoint.save(table, tmp_path / "saved")
    tiered = de.Variable(dim=8, name="t", tier=de.DiskTier(str(two_mib), memory_bytes=50_000))
    fill(tiered, 1000, 1.0)
    message = rf"({FULL}).*The table has no rows now; restore it again"
    with pytest.raises(tf.errors.ResourceExhaustedError, match=message):
        de.checkpoint.restore(tiered, tmp_path / "saved")
    assert int(tiered.size()) == 0
    fill(table, 1000, 3.0)
    table.remove(np.arange(1000, MANY))
    de.checkpoint.save(table, tmp_path / "saved")
    assert de.checkpoint.restore(tiered, tmp_path / "saved") == {"t": 1000}
    fill(tiered, 2000, 4.0)
    assert int(tiered.size()) == 2000
    np.testing.assert_array_equal(tiered.lookup(np.arange(2000)), np.full([2000, 8], 4.0))


def test_no_room_for_the_rest_of_a_model(two_mib):
    owner = tf.Module()
    owner.table = de.Variable(dim=8, name="t")
    owner.dense = tf.Variable(tf.ones([10]))
    fill(owner.table, 100, 1.0)
    manager = de.checkpoint.Manager(owner, two_mib)
    first = manager.save()
    before = files_in(two_mib)
    owner.more = tf.Variable(tf.zeros([1 << 20]))
    with pytest.raises(tf.errors.OpError, match=FULL):
        manager.save()
    assert files_in(two_mib) == before
    assert [path.name for path in two_mib.iterdir() if path.is_dir()] == []
    assert manager.restore() == first


def keras_model():
    model = keras.Sequential([keras.Input([], dtype="int64"), de.layers.Embedding(8, name="t")])
    model.compile(de.DynamicEmbeddingOptimizer(keras.optimizers.SGD()), "mse")
    fill(model.layers[0].table, FEW, 1.0)
    return model


def fit(model, callback):
    ids, labels = np.arange(8), np.ones([8, 8], np.float32)
    model.fit(ids, labels, epochs=1, verbose=0, callbacks=[callback])


def test_the_incremental_callback(two_mib):
    model = keras_model()
    fit(model, de.checkpoint.IncrementalCheckpoint(two_mib))
    before = files_in(two_mib)
    callback = de.checkpoint.IncrementalCheckpoint(two_mib, restore=False)
    fill(model.layers[0].table, MANY, 2.0)
    with pytest.raises(tf.errors.OpError, match=FULL):
        fit(model, callback)
    assert files_in(two_mib) == before
    assert_holds(lambda table: de.checkpoint.restore(table, two_mib))


def test_keras_model_checkpoint(two_mib):
    # Keras writes one file per save. If the file does not fit, Keras leaves a part of it.
    model, first = keras_model(), two_mib / "1.keras"
    fit(model, keras.callbacks.ModelCheckpoint(first))
    before = first.read_bytes()
    fill(model.layers[0].table, MANY, 2.0)
    with pytest.raises((OSError, RuntimeError), match=FULL):
        fit(model, keras.callbacks.ModelCheckpoint(two_mib / "2.keras"))
    assert first.read_bytes() == before
    assert int(keras.models.load_model(first).layers[0].table.size()) == FEW


def test_a_saver_of_tensorflow_1(two_mib):
    v1 = tf.compat.v1
    with tf.Graph().as_default(), v1.Session() as session:
        table = de.get_variable("t", dim=8, devices=["/CPU:0"] * 2)
        few, many = fill(table, FEW, 1.0), fill(table, MANY, 2.0)
        size = table.size()
        session.run(v1.global_variables_initializer())
        saver, plain = v1.train.Saver(), {"write_meta_graph": False}
        session.run(few)
        saver.save(session, str(two_mib / "m"), global_step=1, **plain)
        before = files_in(two_mib)
        session.run(many)
        for step in (2, 3):
            with pytest.raises(tf.errors.OpError, match=FULL):
                saver.save(session, str(two_mib / "m"), global_step=step, **plain)
            left = files_in(two_mib).keys() - before.keys()
            # A table's complete file may stay: in a graph no op runs after another op failed.
            assert all(".data-r" in path and ".tmp-" not in path for path in left)
            assert before.items() <= files_in(two_mib).items()
        saver.restore(session, str(two_mib / "m-1"))
        assert session.run(size) == FEW
        session.run(table.clear())
        saver.save(session, str(two_mib / "m"), global_step=4, **plain)
        assert not [path for path in files_in(two_mib) if "m-2" in path or "m-3" in path]
