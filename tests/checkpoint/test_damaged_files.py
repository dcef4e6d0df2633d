"""Every entry point refuses damaged and wrong files: an error names the file; no row changes."""

import random
import shutil

import numpy as np
import pytest
import tensorflow as tf

import de_core as de
from tests.kernels.snapshot_reference_reader import Snapshot

ENTRY_POINTS = ("tables", "manager", "tensorflow", "file system")
#: The error of a missing file.
NO_FILE = {
    "tables": "no file.*whole directory",
    "manager": "beside it.*no file",
    "tensorflow": "beside it.*no file",
    "file system": None,
}
NAMED = (
    tf.errors.DataLossError,
    tf.errors.InvalidArgumentError,
    tf.errors.NotFoundError,
    tf.errors.FailedPreconditionError,
)


def module(rows, value, *, dim=1, shards=1, **attributes):
    owner = tf.Module()
    owner.table = de.Variable(dim=dim, name="t", devices=["/CPU:0"] * shards, **attributes)
    owner.table.upsert(
        tf.range(rows, dtype=tf.int64),
        tf.fill([rows, dim], tf.cast(value, owner.table.value_dtype)),
    )
    return owner


def save(entry_point, owner, folder):
    """Writes a checkpoint; with a Manager, a base and a delta."""
    if entry_point == "tables":
        de.checkpoint.save(owner.table, folder)
    elif entry_point == "manager":
        manager = de.checkpoint.Manager(owner, folder)
        manager.save()
        owner.table.upsert([0], tf.ones([1, owner.table.dim]))
        manager.save()
    elif entry_point == "tensorflow":
        tf.train.Checkpoint(target=owner).write(str(folder / "c"))
    else:
        owner.table.save_to_file_system(str(folder))


def restore(entry_point, owner, folder):
    if entry_point == "tables":
        de.checkpoint.restore(owner.table, folder)
    elif entry_point == "manager":
        manager = de.checkpoint.Manager(owner, folder)
        manager.restore(str(folder / "ckpt-2"))
    elif entry_point == "tensorflow":
        tf.train.Checkpoint(target=owner).read(str(folder / "c"))
    else:
        owner.table.load_from_file_system(str(folder))


def snapshots(folder):
    return sorted(
        path for path in folder.iterdir() if ".data-r" in path.name or path.suffix == ".de"
    )


class Live:
    """A table with a single row. Restoring a bad file must raise and leave the row unchanged."""

    def __init__(self, entry_point, folder, **attributes):
        self._entry_point, self._folder = entry_point, folder
        self.owner = module(1, 7, **attributes)

    def refuses(self, error=NAMED, match=None):
        with pytest.raises(error, match=match):
            restore(self._entry_point, self.owner, self._folder)
        keys, rows = self.owner.table.export()
        assert keys.numpy().tolist() == [0]
        assert np.all(rows == 7)

    def takes(self, rows):
        restore(self._entry_point, self.owner, self._folder)
        assert int(self.owner.table.size()) == rows


def damage_all(entry_point, folder, damages, **attributes):
    """Checks that each damage of each file is refused, and that undamaged files restore again."""
    save(entry_point, module(2, 1, **attributes), folder)
    live = Live(entry_point, folder)
    for file in snapshots(folder):
        whole = file.read_bytes()
        for damaged in damages(file, whole):
            file.write_bytes(damaged)
            live.refuses(match=file.name)
        file.write_bytes(whole)
    live.takes(2)


def flipped(every):
    def damages(_, whole):
        for at in range(random.Random(every).randrange(every), len(whole), every):
            yield whole[:at] + bytes([whole[at] ^ 1 << at % 8]) + whole[at + 1 :]

    return damages


@pytest.mark.parametrize(
    ("entry_point", "every"),
    [("file system", 1), *((entry_point, 29) for entry_point in ENTRY_POINTS)],
)
def test_flipped_bytes(tmp_path, entry_point, every):
    damage_all(entry_point, tmp_path, flipped(every), shards=1 if every == 1 else 2)


@pytest.mark.parametrize("entry_point", ENTRY_POINTS)
def test_truncation_at_every_block_and_anywhere(tmp_path, entry_point):
    rng = random.Random(entry_point)

    def damages(file, whole):
        footer = Snapshot(file).footer
        ends = [0, 128, int(footer["directory"]), len(whole) - 8, len(whole) - 1]
        ends += [int(section["offset"]) for section in Snapshot(file).sections]
        for end in {*ends, *(rng.randrange(len(whole)) for _ in range(10))}:
            yield whole[:end]
        yield whole + whole[-64:]

    damage_all(entry_point, tmp_path, damages)


@pytest.mark.parametrize("entry_point", ENTRY_POINTS)
def test_another_version_of_the_format(tmp_path, entry_point):
    damage_all(entry_point, tmp_path, lambda _, whole: [whole[:8] + b"\2" + whole[9:]])


@pytest.mark.parametrize("entry_point", ENTRY_POINTS)
@pytest.mark.parametrize("wrong", [{"dim": 2}, {"value_dtype": tf.float64}])
def test_another_dim_or_dtype(tmp_path, entry_point, wrong):
    save(entry_point, module(2, 1), tmp_path)
    live = Live(entry_point, tmp_path, **wrong)
    live.refuses(tf.errors.InvalidArgumentError, "Received")


@pytest.mark.parametrize("entry_point", ENTRY_POINTS)
@pytest.mark.parametrize("shards", [1, 2])
def test_a_missing_shard(tmp_path, entry_point, shards):
    save(entry_point, module(50, 1, shards=shards), tmp_path)
    live = Live(entry_point, tmp_path)
    for file in snapshots(tmp_path):
        file.rename(tmp_path / "elsewhere")
        live.refuses(tf.errors.NotFoundError, NO_FILE[entry_point])
        (tmp_path / "elsewhere").rename(file)
    live.takes(50)


@pytest.mark.parametrize("entry_point", ENTRY_POINTS)
def test_files_of_two_checkpoints_mixed(tmp_path, entry_point):
    folders = tmp_path / "a", tmp_path / "b"
    for folder, value in zip(folders, (1, 2), strict=True):
        folder.mkdir()
        save(entry_point, module(50, value, shards=2), folder)
    live = Live(entry_point, folders[0])
    for mine, other in zip(*map(snapshots, folders), strict=True):
        kept = mine.read_bytes()
        shutil.copy(other, mine)
        live.refuses(tf.errors.DataLossError, "saved (with it|together)")
        mine.write_bytes(kept)
    live.takes(50)


def test_a_saver_of_tensorflow_1(tmp_path):
    v1 = tf.compat.v1
    with tf.Graph().as_default(), v1.Session() as session:
        table = de.get_variable("t", dim=1, devices=["/CPU:0"] * 2)
        fill = table.upsert(tf.range(50, dtype=tf.int64), tf.ones([50, 1]))
        change, contents = table.upsert([0], [[7.0]]), table.export()
        session.run(v1.global_variables_initializer())
        session.run(fill)
        saver = v1.train.Saver()
        saver.save(session, str(tmp_path / "c"))
        session.run(table.remove(tf.range(1, 50, dtype=tf.int64)))
        session.run(change)
        for file in snapshots(tmp_path):
            whole = file.read_bytes()
            for damaged in (*flipped(61)(file, whole), whole[:-1], whole[:128], b""):
                file.write_bytes(damaged)
                with pytest.raises(NAMED, match=file.name):
                    saver.restore(session, str(tmp_path / "c"))
                file.unlink()
                with pytest.raises((*NAMED, ValueError)):
                    saver.restore(session, str(tmp_path / "c"))
                keys, rows = session.run(contents)
                assert (keys.tolist(), rows.tolist()) == ([0], [[7.0]])
            file.write_bytes(whole)
        saver.restore(session, str(tmp_path / "c"))
        assert len(session.run(contents)[0]) == 50
