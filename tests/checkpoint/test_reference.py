"""A TensorFlow checkpoint names the snapshot files beside it."""

import shutil
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

import de_core as de

KEYS = np.arange(3000, dtype=np.int64) * 7919 - 5000


def module(shards=1, **arguments):
    result = tf.Module()
    result.dense = tf.Variable(1.0)
    result.table = de.Variable(dim=8, name="t", devices=["/CPU:0"] * shards, **arguments)
    return result


def fill(owner, value):
    owner.dense.assign(value)
    owner.table.upsert(KEYS, np.full([len(KEYS), 8], value, np.float32))


def is_filled(owner, value):
    rows, found = owner.table.lookup(KEYS, return_exists=True)
    return bool(np.all(rows == value) and np.all(found) and float(owner.dense) == value)


def snapshots(folder, prefix):
    return sorted(path.name for path in folder.glob(f"{prefix}.data-r*"))


@pytest.mark.parametrize(
    "kind", [tf.train.Checkpoint, tf.compat.v1.train.Checkpoint], ids=["v2", "v1"]
)
def test_the_rows_lie_beside_the_checkpoint_wherever_it_is_moved(tmp_path, kind):
    owner = module(shards=2)
    fill(owner, 3.0)
    (tmp_path / "a").mkdir()
    kind(m=owner).write(str(tmp_path / "a" / "c"))
    assert len(snapshots(tmp_path / "a", "c")) == 2
    assert (tmp_path / "a" / "c.data-00000-of-00001").stat().st_size < 2000
    (tmp_path / "a").rename(tmp_path / "moved")
    shutil.copytree(tmp_path / "moved", tmp_path / "copied")
    for file in (tmp_path / "copied").iterdir():  # give the copy another prefix
        file.rename(file.with_name("other" + file.name.removeprefix("c")))
    shutil.rmtree(tmp_path / "moved")
    restored = module(shards=3)
    kind(m=restored).restore(str(tmp_path / "copied" / "other")).expect_partial()
    assert is_filled(restored, 3.0)


def test_a_deleted_checkpoint_takes_its_files_along_and_no_others(tmp_path):
    owner = module(shards=2)
    checkpoint = tf.train.Checkpoint(m=owner)
    manager = tf.train.CheckpointManager(checkpoint, tmp_path, max_to_keep=2)
    others = tf.train.CheckpointManager(checkpoint, tmp_path, max_to_keep=2, checkpoint_name="c")
    for number in (1, 10, 11, 100):  # each name is a prefix of the next
        fill(owner, number)
        manager.save(checkpoint_number=number)
        others.save(checkpoint_number=number)
    for name in ("ckpt", "c"):
        for gone in (1, 10):
            assert not list(tmp_path.glob(f"{name}-{gone}.*"))
        for kept in (11, 100):
            assert len(snapshots(tmp_path, f"{name}-{kept}")) == 2
            checkpoint.restore(str(tmp_path / f"{name}-{kept}"))
            assert is_filled(owner, kept)


@pytest.mark.parametrize("as_tensor", [False, True])
def test_a_checkpoint_inside_a_function_refers_to_files_beside_it(tmp_path, as_tensor):
    owner, restored = module(shards=2), module(shards=1)
    owner.more, restored.more = (de.Variable(dim=1, name="more") for _ in range(2))
    owner.more.upsert([3], [[4.0]])
    checkpoint = tf.train.Checkpoint(m=owner)

    @tf.function
    def write(prefix):
        return checkpoint.write(prefix)

    for number in range(3):
        fill(owner, float(number))
        prefix = str(tmp_path / f"c{number}")
        write(tf.constant(prefix) if as_tensor else prefix)
    for number in range(3):
        prefix = str(tmp_path / f"c{number}")
        assert len(list(tmp_path.glob(f"c{number}.data-r*"))) == 3
        tf.train.Checkpoint(m=restored).read(prefix).assert_consumed()
        assert is_filled(restored, float(number))
        assert restored.more.lookup([3]).numpy().tolist() == [[4.0]]


@pytest.mark.parametrize("how", ["eager", "function", "Saver"])
def test_a_rewritten_checkpoint_leaves_only_the_previous_files(tmp_path, how):
    prefix = str(tmp_path / "c")
    if how == "Saver":
        v1 = tf.compat.v1
        with tf.Graph().as_default(), v1.Session() as session:
            owner = module()
            session.run(v1.global_variables_initializer())
            saver = v1.train.Saver()
            for _ in range(5):
                saver.save(session, prefix)
            saver.restore(session, prefix)
    else:
        owner = module()
        checkpoint = tf.train.Checkpoint(m=owner)
        write = checkpoint.write if how == "eager" else tf.function(checkpoint.write)
        for value in range(1, 6):
            fill(owner, float(value))
            write(prefix)
        fill(owner, 6.0)
        checkpoint.read(prefix)
        assert is_filled(owner, 5.0)
    assert len(list(tmp_path.glob("c.data-r*"))) <= 2


def test_a_failed_save_leaves_nothing(tmp_path):
    owner = module(shards=2)
    checkpoint = tf.train.Checkpoint(m=owner)
    fill(owner, 1.0)
    checkpoint.save(str(tmp_path / "c"))
    before = sorted(tmp_path.iterdir())
    tables = owner.table.tables
    original = tables[1].run

    def fails(op, path, *inputs, **attributes):
        return original(op, str(path) + "/no/such/folder", *inputs, **attributes)

    tables[1].run = fails
    with pytest.raises(tf.errors.OpError):
        checkpoint.save(str(tmp_path / "c"))
    assert [path for path in sorted(tmp_path.iterdir()) if path not in before] == []


def test_a_graph_of_tensorflow_1_writes_files_and_its_saver_deletes_them(tmp_path):
    v1 = tf.compat.v1
    with tf.Graph().as_default(), v1.Session() as session:
        tables = [de.get_variable(name, dim=2, devices=["/CPU:0"] * 2) for name in ("a", "b")]
        writes = [
            table.upsert(tf.range(100, dtype=tf.int64), tf.ones([100, 2])) for table in tables
        ]
        session.run(v1.global_variables_initializer())
        session.run(writes)
        saver = v1.train.Saver(max_to_keep=2)
        for step in (1, 10, 11):
            saver.save(session, str(tmp_path / "m"), global_step=step)
        assert snapshots(tmp_path, "m-1") == []
        assert len(snapshots(tmp_path, "m-10")) == len(snapshots(tmp_path, "m-11")) == 4
        assert Path(f"{tmp_path}/m-11.data-00000-of-00001").stat().st_size < 2000
        mine, other = (snapshots(tmp_path, f"m-{number}")[0] for number in (10, 11))
        shutil.copy(tmp_path / other, tmp_path / mine)
        with pytest.raises(tf.errors.InvalidArgumentError, match="saved with it"):
            saver.restore(session, str(tmp_path / "m-10"))
        saver.restore(session, str(tmp_path / "m-11"))
