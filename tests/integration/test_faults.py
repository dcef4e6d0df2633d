"""Faults while tables are saved: processes that are killed, full disks, tables that change."""

import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

import de_core as de

ROOT = Path(__file__).resolve().parents[2]

# Saves in a loop, each save with a number in every row, and prints the number when save returned.
SAVER = """
import sys
import numpy as np, tensorflow as tf
import de_core as de

door, folder, shards = sys.argv[1], sys.argv[2], int(sys.argv[3])
owner = tf.Module()
owner.step = tf.Variable(0, dtype=tf.int64)
owner.table = de.Variable(dim=8, name="t", devices=["/CPU:0"] * shards)
checkpoint = tf.train.Checkpoint(target=owner)
if door == "manager":
    manager = de.checkpoint.Manager(owner, folder, max_to_keep=2, compact_after=3)
    manager.restore()
    save = manager.save
elif door == "tensorflow":
    manager = tf.train.CheckpointManager(checkpoint, folder, max_to_keep=2)
    checkpoint.restore(manager.latest_checkpoint).expect_partial()
    save = manager.save
else:
    if de.checkpoint.latest(folder + "/..") is not None:
        de.checkpoint.restore(owner.table, folder)
    save = lambda: de.checkpoint.save(owner.table, folder)
keys = np.arange(4000)
number = int(owner.table.lookup([0])[0, 0])
print("begins", number, flush=True)
while True:
    number += 1
    owner.step.assign(number)
    if door == "manager":
        owner.table.upsert(keys[:400], np.full([400, 8], number, np.float32))
        if number == 1:
            owner.table.upsert(keys[400:], np.full([3600, 8], -1.0, np.float32))
    else:
        owner.table.upsert(keys, np.full([4000, 8], number, np.float32))
    save()
    print(number, flush=True)
"""


def saved_number(door, folder):
    """The number that the newest checkpoint holds, after checking that it is whole."""
    table = de.Variable(dim=8, name="t")
    newest = de.checkpoint.latest(folder if door != "tables" else folder.parent)
    if newest is None:
        return 0
    de.checkpoint.restore(table, newest)
    assert int(table.size()) == 4000
    rows = table.lookup(np.arange(4000)).numpy()
    changing = rows[:400] if door == "manager" else rows
    assert np.all(changing == changing[0, 0])
    assert np.all(rows[400:] == -1.0) or door != "manager"
    return int(changing[0, 0])


def killed(door, folder, shards, kills, rng):
    """Kills a process that saves, again and again; returns how often a save was under way."""
    returned, under_way = 0, 0
    for _ in range(kills):
        process = subprocess.Popen(
            [sys.executable, "-c", SAVER, door, str(folder), str(shards)],
            stdout=subprocess.PIPE,
            cwd=ROOT,
            text=True,
        )
        begins = process.stdout.readline().split()
        assert begins[:1] == ["begins"]
        assert int(begins[1]) >= returned
        # Several saves, then a moment in the next one.
        for _ in range(rng.randrange(1, 4)):
            returned = int(process.stdout.readline())
        time.sleep(rng.random() * 0.02)
        os.kill(process.pid, signal.SIGKILL)
        rest = process.stdout.read().split()
        process.wait(timeout=60)
        returned = int(rest[-1]) if rest else returned
        found = saved_number(door, folder)
        assert returned <= found <= returned + 1
        under_way += found > returned or bool(list(folder.glob("*tmp*")))
        returned = found
    return under_way


@pytest.mark.parametrize(("door", "shards"), [("manager", 1), ("tensorflow", 2), ("tables", 2)])
def test_a_killed_process_leaves_the_last_checkpoint_whole(tmp_path, door, shards):
    killed(door, tmp_path / "saves", shards, 3, random.Random(door))


@pytest.mark.slow
@pytest.mark.parametrize(("door", "shards"), [("manager", 2), ("tensorflow", 1), ("tables", 1)])
def test_hundreds_of_killed_processes(tmp_path, door, shards):
    killed(door, tmp_path / "saves", shards, 100, random.Random(door))


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 2 MiB in memory."""
    folder = tmp_path / "small"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(folder)]
    if shutil.which("mount") is None or subprocess.run(command, check=False).returncode:
        pytest.skip("needs the right to mount a tmpfs")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def doors(owner, folder):
    return {
        "tables": lambda: de.checkpoint.save(owner.table, folder),
        "manager": de.checkpoint.Manager(owner, folder).save,
        "tensorflow": tf.train.CheckpointManager(
            tf.train.Checkpoint(target=owner), folder, max_to_keep=5
        ).save,
        "file system": lambda: owner.table.save_to_file_system(str(folder)),
    }


@pytest.mark.parametrize("door", ["tables", "manager", "tensorflow", "file system"])
def test_a_full_disk_is_said_and_spoils_nothing(small_disk, door):
    owner = tf.Module()
    owner.table = de.Variable(dim=8, name="t", devices=["/CPU:0"] * 2)
    owner.table.upsert(np.arange(20000), np.ones([20000, 8], np.float32))
    save = doors(owner, small_disk)[door]
    save()
    files = {path.name: path.read_bytes() for path in small_disk.iterdir()}
    owner.table.upsert(np.arange(40000), np.full([40000, 8], 2.0, np.float32))
    with pytest.raises(tf.errors.OpError, match=r"[Nn]o space|exhausted"):
        save()
    assert {path.name: path.read_bytes() for path in small_disk.iterdir()} == files
    other = de.Variable(dim=8, name="t")
    assert de.checkpoint.restore(other, small_disk) == {"t": 20000}
    np.testing.assert_array_equal(other.lookup([7]), np.ones([1, 8]))


@pytest.mark.parametrize("what", ["clear", "shrink", "grow", "train"])
@pytest.mark.parametrize("consistent", [False, True])
def test_a_table_changes_while_it_is_saved(tmp_path, what, consistent):
    # Every row is written with one number throughout, so that a mixed one would show.
    table = de.Variable(dim=32, name="t")
    keys = np.arange(30000)
    table.upsert(keys, np.repeat(keys % 7, 32).reshape(-1, 32).astype(np.float32))
    stop = threading.Event()

    def disturb():
        number = 0
        while not stop.is_set():
            number += 1
            if what == "clear":
                table.clear()
            if what == "shrink":
                table.remove(keys[number % 30 :: 30])
                table.shrink_to_fit()
            batch = keys[(number * 977) % 20000 :][:4096] + (
                10**6 * number if what == "grow" else 0
            )
            table.upsert(batch, np.full([len(batch), 32], number, np.float32))

    thread = threading.Thread(target=disturb)
    thread.start()
    try:
        for number in range(4):
            de.checkpoint.save(table, tmp_path / str(number), consistent=consistent)
    finally:
        stop.set()
        thread.join(timeout=60)
    assert not thread.is_alive()
    for number in range(4):
        other = de.Variable(dim=32, name="t")
        de.checkpoint.restore(other, tmp_path / str(number))
        keys_found, rows = (each.numpy() for each in other.export())
        assert len(np.unique(keys_found)) == len(keys_found) == int(other.size())
        assert np.all(rows == rows[:, :1])


def test_restoring_and_saving_at_once_end(tmp_path):
    table = de.Variable(dim=4, name="t", devices=["/CPU:0"] * 2)
    table.upsert(np.arange(5000), np.ones([5000, 4], np.float32))
    de.checkpoint.save(table, tmp_path / "a")

    def repeat(function):
        for _ in range(5):
            function()

    actions = [
        lambda: de.checkpoint.restore(table, tmp_path / "a"),
        lambda: de.checkpoint.save(table, tmp_path / "b"),
        lambda: table.upsert(np.arange(5000), np.ones([5000, 4], np.float32)),
    ]
    threads = [threading.Thread(target=repeat, args=[action]) for action in actions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=120)
        assert not thread.is_alive()
    other = de.Variable(dim=4, name="t")
    de.checkpoint.restore(other, tmp_path / "b")
    assert np.all(other.export()[1] == 1)
