"""Deleting old files: every kept checkpoint restores exactly its own state."""

import os
import re
import stat
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

import de_core as de
from tests.checkpoint.test_full_disk import entry_points
from tests.support.models import rows_of

KEYS = np.arange(400)


class Owner(tf.Module):
    """Two tables and a dense variable. The second table may be added later."""

    def __init__(self, shards=1):
        super().__init__()
        self.step = tf.Variable(0, dtype=tf.int64)
        self.users = table("users", shards)
        self.items = None

    def change(self, rng):
        self.step.assign_add(1)
        for each in filter(None, (self.users, self.items)):
            keys = rng.choice(KEYS, 40, replace=False)
            each.upsert(keys[:30], rng.normal(size=[30, 2]).astype("f4"))
            each.remove(keys[30:])

    def contents(self):
        tables = {each.name: rows_of(each) for each in (self.users, self.items) if each is not None}
        return int(self.step), tables


def table(name, shards=1):
    return de.Variable(dim=2, name=name, devices=["/CPU:0"] * shards)


def restored(prefix, expected):
    """Returns a checkpoint's content, read by TensorFlow's own `Checkpoint`."""
    other = Owner()
    if "items" in expected[1]:
        other.items = table("items")
    tf.train.Checkpoint(target=other).read(str(prefix)).assert_existing_objects_matched()
    return other.contents()


def assert_all_kept(manager, expected, count):
    assert len(manager.checkpoints) == min(count, len(expected))
    for prefix in manager.checkpoints:
        assert restored(prefix, expected[prefix]) == expected[prefix], prefix
    assert tf.train.latest_checkpoint(Path(prefix).parent) == manager.checkpoints[-1]


@pytest.mark.each_choice
@pytest.mark.parametrize("keep", [pytest.param(1, marks=pytest.mark.slow), 2, 4])
@pytest.mark.parametrize("shards", [1, 2])
@pytest.mark.parametrize(
    "options", [{"base_every": 3}, {"compact_after": 2}, {"compact_after": 50}]
)
def test_every_kept_checkpoint_restores_after_every_save(tmp_path, options, shards, keep):
    owner, rng, expected = Owner(shards), np.random.default_rng(keep), {}
    manager = de.checkpoint.Manager(owner, tmp_path, max_to_keep=keep, **options)
    for step in range(9):
        owner.change(rng)
        expected[manager.save()] = owner.contents()
        if step == 4:
            owner.items = table("items", shards)
        if step % 2:
            manager.wait()
        assert_all_kept(manager, expected, keep)


@pytest.mark.parametrize(
    "seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 20))]
)
def test_every_kept_checkpoint_restores_whatever_was_done_between(tmp_path, seed):
    rng, expected, keep = np.random.default_rng(seed), {}, 3

    def begun():
        owner = Owner(shards=int(rng.integers(1, 3)))
        options = {"compact_after": int(rng.integers(1, 5))}
        return owner, de.checkpoint.Manager(owner, tmp_path / "a", max_to_keep=keep, **options)

    owner, manager = begun()
    for _ in range(25):
        match rng.integers(7):
            case 0:  # the process ends, and another one continues
                manager.wait()
                owner, manager = begun()
                manager.restore()
            case 1 if manager.checkpoints:
                manager.restore(rng.choice(manager.checkpoints))
            case 2:  # another checkpoint is restored without the manager
                other = Owner()
                other.change(rng)
                de.checkpoint.save({"users": other.users}, tmp_path / "b")
                de.checkpoint.restore({"users": owner.users}, tmp_path / "b")
            case 3:
                owner.users.clear()
            case _:
                owner.change(rng)
        expected[manager.save()] = owner.contents()
        assert_all_kept(manager, expected, keep)
    assert len(expected) == 25


@pytest.mark.parametrize("how", ["saved", "restored"])
def test_a_table_that_no_longer_follows_its_last_save_is_saved_whole(tmp_path, how):
    owner, rng = Owner(2), np.random.default_rng(0)
    manager = de.checkpoint.Manager(owner, tmp_path)
    another = de.checkpoint.Manager(owner, tmp_path)
    owner.users.upsert(KEYS, np.zeros([400, 2], np.float32))
    expected, manager_has_saved = {}, False
    for between in (False, False, True, False):
        owner.change(rng)
        if between and how == "saved":
            expected[another.save()] = owner.contents()
            owner.change(rng)
        elif between:
            another.restore(manager.checkpoints[0])
        expected[manager.save()] = owner.contents()
        whole = not manager_has_saved or between
        manager_has_saved = True
        for report in manager.reports["users"]:
            assert (report["sequence"] == 0) == whole
    assert_all_kept(manager, expected, 5)


@pytest.mark.parametrize(
    ("lost", "after", "saves", "options", "kept"),
    [
        pytest.param(1, 3, 5, {}, (4, 5), id="the base of a chain"),
        pytest.param(2, 3, 5, {}, (4, 5), id="a delta of a chain"),
        pytest.param(2, 2, 3, {"base_every": 1}, (1, 3), id="all of a checkpoint"),
    ],
)
def test_what_lacks_a_file_is_neither_continued_nor_counted_as_kept(
    tmp_path, lost, after, saves, options, kept
):
    owner, rng, expected = Owner(), np.random.default_rng(0), {}
    manager = de.checkpoint.Manager(owner, tmp_path, max_to_keep=2, **options)
    for number in range(1, saves + 1):
        owner.change(rng)
        expected[manager.save()] = owner.contents()
        if number == after:
            for file in tmp_path.glob(f"ckpt-{lost}.data-r*"):
                file.unlink()
    prefixes = [str(tmp_path / f"ckpt-{number}") for number in kept]
    assert manager.checkpoints == prefixes
    assert_all_kept(manager, {prefix: expected[prefix] for prefix in prefixes}, 2)


@pytest.mark.parametrize("base_every", [None, 1])
def test_rolling_back_by_hand_deletes_nothing_that_is_needed(tmp_path, base_every):
    owner, rng, expected = Owner(), np.random.default_rng(0), {}
    manager = de.checkpoint.Manager(owner, tmp_path, max_to_keep=3, base_every=base_every)
    for _ in range(3):
        owner.change(rng)
        expected[manager.save()] = owner.contents()
    (tmp_path / "ckpt-3.index").unlink()
    for number in range(3, 7):
        owner.change(rng)
        expected[manager.save()] = owner.contents()
        assert sorted(expected) == [str(tmp_path / f"ckpt-{each}") for each in range(1, number + 1)]
        assert_all_kept(manager, expected, 3)


def test_nothing_is_deleted_while_an_index_cannot_be_read(tmp_path):
    owner, rng, expected = Owner(), np.random.default_rng(0), {}
    manager = de.checkpoint.Manager(owner, tmp_path, max_to_keep=2, compact_after=2)
    for _ in range(4):  # the second save's rows were merged into a file of the fourth save
        owner.change(rng)
        expected[manager.save()] = owner.contents()
        manager.wait()
    index = tmp_path / "ckpt-4.index"
    whole = index.read_bytes()
    index.write_bytes(b"")
    again = de.checkpoint.Manager(owner, tmp_path, max_to_keep=2)
    owner.change(rng)
    expected[again.save()] = owner.contents()
    index.write_bytes(whole)
    prefix = str(tmp_path / "ckpt-4")
    assert restored(prefix, expected[prefix]) == expected[prefix]


def test_a_renamed_checkpoint_keeps_its_files(tmp_path):
    owner, rng, expected = Owner(), np.random.default_rng(0), {}
    owner.change(rng)
    expected[str(tmp_path / "best-1")] = owner.contents()
    de.checkpoint.Manager(owner, tmp_path).save()
    for file in tmp_path.glob("ckpt-1.*"):
        file.rename(tmp_path / file.name.replace("ckpt", "best"))
    manager = de.checkpoint.Manager(owner, tmp_path, name="best", max_to_keep=2)
    assert manager.restore() == str(tmp_path / "best-1")
    for _ in range(3):
        owner.change(rng)
        expected[manager.save()] = owner.contents()
        assert_all_kept(manager, expected, 2)


def test_saves_into_files_keep_the_rows_of_everyone_else(tmp_path):
    folder, rng = str(tmp_path), np.random.default_rng(0)
    writers = {  # files by name and process; the names have a common prefix
        ("users", 2, 0): {},
        ("users", 2, 1): {},
        ("users", 1, 0): {},
        ("users_mht", 1, 0): {},
        ("use", 1, 0): {},
    }
    names = list(writers)
    for _ in range(30):
        chosen = names[rng.integers(len(names))]
        name, size, rank = chosen
        append = bool(rng.integers(2))
        saved = table(name, shards=int(rng.integers(1, 4)))
        if append and writers[chosen]:  # all parts belong to a file name with the same count
            saved = table(name, shards=writers[chosen]["shards"])
        saved.upsert(rng.choice(KEYS, 30, replace=False), rng.normal(size=[30, 2]).astype("f4"))
        processes = {"proc_size": size, "proc_rank": rank}
        saved.save_to_file_system(folder, append_to_file=append, **processes)
        before = writers[chosen].get("rows", {}) if append else {}
        writers[chosen] = {"rows": before | rows_of(saved), "shards": len(saved.tables)}
        for (name, size, rank), told in writers.items():
            if told and not (size == 2 and not all(writers["users", 2, each] for each in (0, 1))):
                other = table(name)
                other.load_from_file_system(folder, proc_size=size, proc_rank=rank)
                assert rows_of(other) == told["rows"], (name, size, rank)


def sync_fails_for(monkeypatch, wanted):
    """Makes the sync of paths of one kind fail."""
    sync = os.fsync

    def fsync(descriptor):
        if wanted(descriptor):
            raise OSError(5, "Input/output error")
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)


def is_folder(descriptor):
    return stat.S_ISDIR(os.fstat(descriptor).st_mode)


def is_file(descriptor):
    return not is_folder(descriptor)


@pytest.mark.parametrize(
    ("entry_point", "of"),
    [
        ("tables", is_folder),
        ("tables", is_file),
        ("manager", is_folder),
        ("manager", is_file),
        ("file system", is_folder),  # the engine syncs its files
    ],
)
def test_a_disk_that_cannot_sync_raises_and_keeps_checkpoints(
    tmp_path, monkeypatch, entry_point, of
):
    owner, rng = Owner(2), np.random.default_rng(0)
    save, restore = entry_points(owner, owner.users, tmp_path)[entry_point]
    owner.change(rng)
    save()
    before = rows_of(owner.users)
    with monkeypatch.context() as patch:
        sync_fails_for(patch, of)
        owner.change(rng)
        with pytest.raises(tf.errors.OpError, match=r"(?s)disk.*Received: .*Input/output error"):
            save()
    other = table("users")
    restore(other)
    assert rows_of(other) in (before, rows_of(owner.users))  # old or new, but complete
    for _ in range(2):
        owner.change(rng)
        save()
        restore(other)
        assert rows_of(other) == rows_of(owner.users)
    left = [each.name for each in tmp_path.iterdir() if re.search(r"\.tmp|\.new|SAVING", each.name)]
    assert left == []
