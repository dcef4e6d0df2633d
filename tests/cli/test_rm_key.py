"""`de-core rm-key` copies every kind of checkpoint without keys, or makes no copy."""

from __future__ import annotations

from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf

import de_core as de
from de_core.snapshot.file import about, metadata_of


def test_a_file_keeps_all_but_the_keys(files, tmp_path, as_json):
    target = str(tmp_path / "c.de")
    [told] = as_json("rm-key", files[0], target, "--key", 7, "--key", 12345)
    assert told == {"table": "users", "removed": 1, "rows": 999}
    [difference] = as_json("diff", files[0], target, status=1)
    assert difference["keys"] == {"removed": [7], "added": [], "changed": []}
    assert difference["slots_compared"]
    old, new = (about(path, own=True) for path in (files[0], target))
    assert metadata_of(new) == metadata_of(old)
    assert new["initializer"] == old["initializer"]
    assert new["id"] != old["id"]


def test_the_tables_own_metadata_stays(tmp_path, as_json):
    table = de.Variable(
        dim=1, name="t", admission=de.AdmissionCount(2), eviction=de.EvictionTTL(steps=9)
    )
    table.upsert([1, 2], [[1.0], [2.0]])
    table.save_to_file_system(str(tmp_path), file_name_list=["t"])
    as_json("rm-key", tmp_path / "t.de", tmp_path / "u.de", "--key", 1)
    old, new = (about(str(tmp_path / f"{name}.de"), own=True) for name in "tu")
    assert {"de.admission", "de.steps"} <= old["metadata"].keys()
    assert metadata_of(new) == metadata_of(old)
    copy = de.Variable(
        dim=1, name="t", admission=de.AdmissionCount(2), eviction=de.EvictionTTL(steps=9)
    )
    assert de.checkpoint.restore(copy, tmp_path / "u.de") == {"t": 1}


def test_a_directory_of_tables(table, tmp_path, ran, as_json):
    words = de.Variable(tf.string, dim=1, name="words", devices=["/CPU:0"] * 2)
    words.upsert(["7", "b"], [[1.0], [2.0]])
    de.checkpoint.save([table, words], tmp_path / "c")
    told = as_json("rm-key", tmp_path / "c", tmp_path / "d", "--key", 7, "--table", "words")
    assert {each["table"]: each["removed"] for each in told} == {"users": 0, "words": 1}
    ran("verify", tmp_path / "d")
    assert de.checkpoint.restore([table, words], tmp_path / "d") == {"users": 1000, "words": 1}
    assert bool(words.contains(["b"])[0])


def test_a_directory_with_appended_parts(tmp_path, ran, as_json):
    first, more = (de.Variable(dim=1, name="t") for _ in range(2))
    first.upsert([1, 2], [[1.0], [2.0]])
    more.upsert([2, 3, 4], [[9.0], [3.0], [4.0]])
    first.save_to_file_system(str(tmp_path / "t"))
    more.save_to_file_system(str(tmp_path / "t"), append_to_file=True)
    assert sorted(ran("cat", tmp_path / "t").out.splitlines()) == ["1\t1", "2\t9", "3\t3", "4\t4"]
    arguments = ["--key", "1", "--key", "2"]
    [told] = as_json("rm-key", tmp_path / "t", tmp_path / "clean", *arguments)
    assert told["removed"] == 2
    left = de.Variable(dim=1, name="t")
    left.load_from_file_system(str(tmp_path / "clean"))
    assert sorted(left.export()[0].numpy().tolist()) == [3, 4]


def test_a_checkpoint_of_tensorflow_with_deltas(table, tmp_path, as_json):
    step = tf.Variable(5)
    manager = de.checkpoint.Manager(
        tf.train.Checkpoint(table=table, step=step), str(tmp_path / "run")
    )
    manager.save()
    table.upsert([7, 8], np.ones([2, 2], np.float32))
    prefix = str(manager.save())
    target = str(tmp_path / "clean" / "ckpt-9")
    [told] = as_json("rm-key", prefix, target, "--key", 7)
    assert (told["removed"], told["rows"]) == (1, 999)
    step.assign(0)
    table.clear()
    tf.train.Checkpoint(table=table, step=step).restore(target).expect_partial()
    assert (int(step), int(table.size())) == (5, 999)
    assert table.lookup([8]).numpy().tolist() == [[1.0, 1.0]]
    assert not bool(table.contains([7])[0])


def test_a_directory_of_checkpoints_is_refused(table, tmp_path, refused):
    manager = de.checkpoint.Manager(table, tmp_path / "run")
    manager.save()
    newest = manager.save()
    said = refused("rm-key", tmp_path / "run", tmp_path / "clean", "--key", "7")
    assert f"for example the newest: {newest!r}" in said
    assert not (tmp_path / "clean").exists()


@pytest.mark.parametrize("target", ["c/d", "c/d/e", "link/d"])
def test_a_target_in_the_source_is_refused(target, table, tmp_path, refused):
    de.checkpoint.save(table, tmp_path / "c")
    (tmp_path / "link").symlink_to(tmp_path / "c")
    names = sorted(tmp_path.rglob("*"))
    said = refused("rm-key", tmp_path / "c", tmp_path / target, "--key", "7")
    assert f"Received: {str(tmp_path / target)!r}" in said
    assert sorted(tmp_path.rglob("*")) == names


def test_no_file_that_an_earlier_save_left_is_copied(table, tmp_path, as_json):
    de.checkpoint.save(table, tmp_path / "c")
    [file] = (tmp_path / "c").glob("*.de")
    for name in ("users-0of1-9.de", "users-0of1-9.de.tmp-0123456789abcdef"):
        (tmp_path / "c" / name).write_bytes(file.read_bytes())
    (tmp_path / "c" / "notes.txt").write_text("the user's")
    as_json("rm-key", tmp_path / "c", tmp_path / "d", "--key", 7)
    assert {each.name for each in (tmp_path / "d").iterdir()} == {
        *("MANIFEST", "notes.txt", file.name)
    }


def test_a_failed_copy_leaves_the_files_beside_it(table, tmp_path, monkeypatch, refused):
    prefix = de.checkpoint.Manager(table, tmp_path / "run").save()
    others = {"ranker.keras", "ranker.notes.txt"}
    for name in others:
        (tmp_path / "clean" / name).parent.mkdir(exist_ok=True)
        (tmp_path / "clean" / name).write_text("the user's")

    def full(**_):
        raise tf.errors.ResourceExhaustedError(None, None, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(tf.raw_ops, "SaveV2", full)
        said = refused("rm-key", prefix, tmp_path / "clean" / "ranker", "--key", "7")
    assert "No space left" in said
    assert {each.name for each in (tmp_path / "clean").iterdir()} == others


def test_a_published_version(keras_files, tmp_path, ran, as_json):
    model, root = keras_files[0], tmp_path / "root"
    table = model.get_layer("emb").table
    de.publish(model, root)
    table.upsert([1000], [[1.0, 2.0, 3.0, 4.0]])
    de.publish(model, root)
    table.remove([1000])
    as_json("rm-key", root, root / "3", "--key", 3)  # of the newest version
    ran("verify", root / "3")
    served = tf.saved_model.load(str(root / "3")).signatures["de_lookup/emb"]
    answer = served(ids=tf.constant([3, 4, 1000], tf.int64))
    assert answer["found"].numpy().tolist() == [False, True, True]


@pytest.mark.parametrize("number", [1, 2])
def test_keras_files_hold_no_byte_of_the_row(keras_files, number, tmp_path, as_json):
    model, source = keras_files[0], keras_files[number]
    target = tmp_path / source.name
    row = model.get_layer("emb").table.lookup([7]).numpy().tobytes()
    assert row in source.read_bytes()
    [told] = as_json("rm-key", source, target, "--key", 7)
    assert (told["removed"], told["rows"]) == (1, 49)
    assert row not in target.read_bytes()
    if number == 1:
        loaded = keras.saving.load_model(target)
        for old, new in zip(model.weights, loaded.weights, strict=True):
            if old.shape == (4, 1):
                np.testing.assert_array_equal(old, new)
        table = loaded.get_layer("emb").table
        assert not bool(table.contains([7])[0])
        assert bool(table.contains([8])[0])


def test_nothing_appears_unless_all_is_done(files, tmp_path, refused):
    target = tmp_path / "c.de"
    names = {each.name for each in tmp_path.iterdir()}
    assert "Received: no row of any key" in refused("rm-key", files[0], target, "--key", "-5")
    data = bytearray(Path(files[1]).read_bytes())
    data[5000] ^= 1
    Path(files[1]).write_bytes(data)
    assert "b.de" in refused("rm-key", files[1], target, "--key", "9")
    assert "must not exist yet" in refused("rm-key", files[0], files[1], "--key", "9")
    assert {each.name for each in tmp_path.iterdir()} == names


def test_keys_come_from_a_file(files, tmp_path, as_json):
    (tmp_path / "keys").write_text("5\n6\n\n5\n")
    [told] = as_json("rm-key", files[0], tmp_path / "c.de", "--keys-from", tmp_path / "keys")
    assert told["removed"] == 2
