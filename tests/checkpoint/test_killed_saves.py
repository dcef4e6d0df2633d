"""A process that is killed at any moment of a save leaves the newest checkpoint complete."""

import contextlib
import os
import random
import shutil
import signal
import time

import numpy as np
import pytest
import tensorflow as tf

import de_core as de
from de_core.base import directory_lock
from tests.support.saving_process import (
    CONTEXT,
    DIM,
    ROWS,
    Model,
    contents,
    save_and_die,
    save_until_killed,
)

ENTRY_POINTS = ("manager", "consistent", "tensorflow", "tables", "tier")


def saved_step(entry_point, folder):
    """Compares every row, and returns the step of the newest checkpoint."""
    newest = de.checkpoint.latest(folder.parent if entry_point == "tables" else folder)
    if newest is None:
        return 0
    model = Model(shards=1)
    if entry_point == "tables":
        de.checkpoint.restore(model.table, newest)
        step = int(model.table.lookup([0])[0, 0])
    else:
        tf.train.Checkpoint(target=model).restore(newest).expect_partial()
        step = int(model.step)
    rows, found = model.table.lookup(np.arange(ROWS), return_exists=True)
    expected = contents(step)
    np.testing.assert_array_equal(found, ~np.isnan(expected))
    np.testing.assert_array_equal(rows.numpy()[found], np.repeat(expected[found], 8).reshape(-1, 8))
    return step


def kill_again_and_again(entry_point, folder, shards, kills, rng):
    """Starts and kills a saving process `kills` times.

    Returns:
        The number of saves that returned, and the number of kills during a save whose checkpoint
        was complete already.
    """
    returned, saves, ahead = 0, 0, 0
    for _ in range(kills):
        told, tell = CONTEXT.Pipe(duplex=False)
        process = CONTEXT.Process(
            target=save_until_killed, args=(entry_point, str(folder), shards, tell)
        )
        process.start()
        tell.close()
        assert told.recv() == returned
        # Wait for 0 to 3 more saves. Then kill the process at a random time, perhaps in a save.
        for _ in range(rng.randrange(4)):
            returned = told.recv()
            saves += 1
        time.sleep(rng.random() * 0.05)
        os.kill(process.pid, signal.SIGKILL)
        process.join()
        try:
            while True:
                returned = told.recv()
                saves += 1
        except EOFError:
            pass
        found = saved_step(entry_point, folder)
        assert returned <= found <= returned + 1
        ahead += found > returned
        returned = found
    return saves, ahead


@pytest.mark.parametrize(
    ("kills", "shards"), [(8, 1), *(pytest.param(100, n, marks=pytest.mark.slow) for n in (1, 2))]
)
@pytest.mark.parametrize("entry_point", ENTRY_POINTS)
def test_a_killed_process_leaves_the_last_checkpoint_whole(tmp_path, entry_point, kills, shards):
    saves, ahead = kill_again_and_again(
        entry_point, tmp_path / "saves", shards, kills, random.Random(entry_point)
    )
    assert saves > (100 if kills == 100 else 4)
    assert ahead > 0 or kills < 100


def directory_of(tmp_path, saves=3):
    model = Model(shards=1)
    manager = de.checkpoint.Manager(model, tmp_path, max_to_keep=2)
    for step in range(1, saves + 1):
        model.table.upsert([step], np.full([1, DIM], step, np.float32))
        model.step.assign(step)
        manager.save()
    return model


@pytest.mark.parametrize("part", [0.0, 0.1, 0.5, 0.99])
def test_a_torn_index_is_no_checkpoint_and_stops_no_later_save(tmp_path, part):
    # TensorFlow writes its index in place.
    directory_of(tmp_path)
    index = tmp_path / "ckpt-3.index"
    index.write_bytes(index.read_bytes()[: int(part * index.stat().st_size)])
    assert de.checkpoint.latest(tmp_path) == str(tmp_path / "ckpt-2")
    model = Model(shards=1)
    manager = de.checkpoint.Manager(model, tmp_path, max_to_keep=2)
    assert manager.restore() == str(tmp_path / "ckpt-2")
    assert int(model.step) == 2
    for number in (4, 5):
        manager.save()
        kept = [str(tmp_path / f"ckpt-{each}") for each in ({4: (2, 4), 5: (4, 5)}[number])]
        assert manager.checkpoints == kept
        for prefix in kept:
            other = Model(shards=1)
            tf.train.Checkpoint(target=other).restore(prefix).expect_partial()
            assert int(other.table.size()) == 2
    assert not list(tmp_path.glob("ckpt-3.*"))


def test_the_next_saves_remove_what_killed_ones_have_left(tmp_path):
    model = directory_of(tmp_path / "manager")
    checkpoint = tf.train.Checkpoint(target=model)
    checkpoint.write(str(tmp_path / "tensorflow"))
    foreign = tmp_path / "manager/else.data-r0000-of-abcde"
    foreign.touch()
    wanted = sorted(tmp_path.rglob("*"))
    left = [
        "manager/ckpt-4.data-r0000-of-abcde",
        "manager/ckpt-4.data-r0000-of-abcde.tmp-0123456789abcdef",
        "tensorflow.data-r0000-of-abcde.tmp-0123456789abcdef",
    ]
    for name in left:
        (tmp_path / name).write_bytes(b"half")
    manager = de.checkpoint.Manager(model, tmp_path / "manager", max_to_keep=2)
    manager.restore()
    manager.save()
    checkpoint.write(str(tmp_path / "tensorflow"))
    assert [name for name in left if (tmp_path / name).exists()] == []
    assert foreign.exists()
    assert len(list(tmp_path.rglob("*"))) <= len(wanted) + 3


@pytest.mark.parametrize("before_the_manifest", [True, False])
@pytest.mark.parametrize("saves", [0, 1])
def test_the_next_saves_remove_the_files_of_a_killed_one_and_no_others(
    tmp_path, saves, before_the_manifest
):
    model, folder = Model(shards=2), tmp_path / "here"
    for _ in range(saves):
        de.checkpoint.save(model.table, folder)
    de.checkpoint.save(model.table, tmp_path / "there")
    process = CONTEXT.Process(target=save_and_die, args=(str(folder), before_the_manifest))
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    [half] = folder.glob("t-1of1-*.de")
    (folder / f"{half.name}.tmp-0123456789abcdef").write_bytes(b"half")
    # Saves must not delete files by name or age: all these files are a day older than the manifest.
    foreign = {"mine.de": b"whole", "t-1of1-101234567.de": b"of another library"}
    foreign |= {file.name: file.read_bytes() for file in (tmp_path / "there").glob("*.de")}
    for name, data in foreign.items():
        (folder / name).write_bytes(data)
    for file in folder.iterdir():
        os.utime(file, (time.time() - 86400,) * 2)
    for number in range(3):
        model.table.upsert([number], np.full([1, DIM], number, np.float32))
        de.checkpoint.save(model.table, folder)
        other = Model(shards=1)
        de.checkpoint.restore(other.table, folder)
        assert int(other.table.size()) == number + 1
    assert {name: (folder / name).read_bytes() for name in foreign} == foreign
    assert len(list(folder.iterdir())) == len(foreign) + 3  # two files and the manifest


@pytest.mark.parametrize(("others", "aborted"), [(1, False), (2, True)])
def test_a_save_in_whose_time_others_replace_the_checkpoint(tmp_path, monkeypatch, others, aborted):
    model, late = Model(shards=1), Model(shards=1)
    for table in (model.table, late.table):
        table.upsert([1], np.ones([1, DIM], np.float32))
    de.checkpoint.save(model.table, tmp_path)
    alone_in = directory_lock.alone_in

    def after_others(folder):
        monkeypatch.setattr(directory_lock, "alone_in", alone_in)
        for _ in range(others):
            de.checkpoint.save(model.table, tmp_path)
        return alone_in(folder)

    monkeypatch.setattr(directory_lock, "alone_in", after_others)
    late.table.upsert([2], np.ones([1, DIM], np.float32))
    with pytest.raises(tf.errors.AbortedError) if aborted else contextlib.nullcontext():
        de.checkpoint.save(late.table, tmp_path)
    assert de.checkpoint.restore(Model(shards=1).table, tmp_path) == {"t": 1 if aborted else 2}
    assert len(list(tmp_path.iterdir())) == 2


def test_the_next_save_removes_rows_of_a_checkpoint_that_tensorflow_failed_to_write(
    tmp_path,
):
    model = directory_of(tmp_path / "other")
    checkpoint = tf.train.Checkpoint(target=model)
    (tmp_path / "a.index").mkdir()  # at the path of the index
    with pytest.raises(tf.errors.OpError):
        checkpoint.write(str(tmp_path / "a"))
    (tmp_path / "a.index").rmdir()
    assert list(tmp_path.glob("a.data-r*"))
    checkpoint.write(str(tmp_path / "b"))
    assert not list(tmp_path.glob("a.data-r*"))
    assert list(tmp_path.glob("b.data-r*"))


@pytest.mark.parametrize("newest", range(8, 13))
def test_a_copied_directory_has_the_same_newest_checkpoint(tmp_path, newest):
    directory_of(tmp_path / "a", saves=newest)
    # Copy like `cp -r`: in alphabetical order, each file a little later than the previous one.
    (tmp_path / "b").mkdir()
    files = [file for file in (tmp_path / "a").iterdir() if ".tmp-" not in file.name]
    for number, file in enumerate(sorted(files)):  # a compaction may be writing its files
        shutil.copy(file, tmp_path / "b")
        os.utime(tmp_path / "b" / file.name, (1e9 + number, 1e9 + number))
    assert de.checkpoint.latest(tmp_path / "b") == str(tmp_path / "b" / f"ckpt-{newest}")
    model = Model(shards=1)
    manager = de.checkpoint.Manager(model, tmp_path / "b")
    assert manager.restore() == str(tmp_path / "b" / f"ckpt-{newest}")
    assert int(model.step) == newest
