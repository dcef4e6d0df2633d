"""The verbs on whole files: verify, diff, cat, import-tfra, doctor."""

from __future__ import annotations

import base64
import csv
import os
import sys
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from pyarrow import parquet

import de_core as de
from de_core.snapshot.file import SnapshotFile, hashes
from tests.support.models import Scores
from tests.tfra_files.artefacts import DATA as ARTEFACTS


def test_the_process_of_a_verb_prints_its_result_alone(files, command):
    done = command("cat", files[0], "--limit", "2")
    assert (done.returncode, done.stderr) == (0, "")
    assert len(done.stdout.splitlines()) == 2
    done = command("doctor")
    assert done.returncode == 0
    assert "The installation works." in done.stdout


def test_verify_finds_every_damaged_file(files, keras_files, ran, as_json):
    assert ran("verify", *files, *keras_files[1:]).out.count(" whole ") == 4
    with Path(files[1]).open("r+b") as file:
        file.seek(5000)
        byte = file.read(1)
        file.seek(5000)
        file.write(bytes([byte[0] ^ 1]))
    good, bad = as_json("verify", *files, status=1)
    assert good["whole"]
    assert not bad["whole"]
    assert files[1] in bad["reason"]
    assert "[Op:" not in bad["reason"]


def test_verify_tells_of_the_other_files_too(files, keras_files, tmp_path, as_json):
    data = keras_files[2].read_bytes()
    bad = [tmp_path / name for name in ("cut.h5", "tree.h5", "absent.h5")]
    bad[0].write_bytes(data[: len(data) // 2])
    bad[1].write_bytes(data.replace(b"TREE", b"TREF"))
    told = as_json("verify", *bad, files[0], status=1)
    assert [each["file"] for each in told] == [*map(str, bad), files[0]]
    assert [each["whole"] for each in told] == [False, False, False, True]
    assert all(each["file"] in each["reason"] for each in told[:3])


@pytest.mark.parametrize(
    ("write", "file"),
    [
        (lambda module, folder: de.checkpoint.save(module, folder), "*.de"),
        (lambda module, folder: module.users.save_to_file_system(folder), "*.de"),
        (de.export, "1/assets/*.de"),
        (de.publish, "1/assets/*.chain"),
    ],
)
def test_verify_finds_what_lacks_a_file(write, file, tmp_path, ran):
    write(Scores(2), str(tmp_path))
    assert ran("verify", tmp_path).out.count(" whole ") == 2
    next(tmp_path.glob(file)).unlink()
    assert "damaged" in ran("verify", tmp_path, status=1).out
    path = max(tmp_path.glob("1"), default=tmp_path)
    with pytest.raises(tf.errors.OpError):
        de.checkpoint.restore(de.Variable(dim=4, name="users"), path)


def test_verify_reads_the_graph_of_a_version(tmp_path, ran):
    graph = Path(de.export(Scores(), tmp_path)) / "saved_model.pb"
    graph.write_bytes(b"garbage!")
    assert f"Received: damaged file '{graph}'" in ran("verify", tmp_path, status=1).out


def test_cat_prints_rows_as_text_and_as_json(files, ran, as_json):
    printed = ran("cat", files[0], "--key", "3", "--key", "4", "--slots").out
    lines = dict(line.split("\t", 1) for line in printed.splitlines())
    assert lines["4"].startswith("8 9\t")
    assert lines["3"].startswith("5.5 6.5\t")
    assert lines["3"].endswith("/momentum=-0.5 -0.5")
    rows = as_json("cat", files[0])
    assert sorted(row["key"] for row in rows) == list(range(1000))
    assert {"key": 9, "value": [18.0, 19.0]} in rows
    assert len(ran("cat", files[0], "--limit", "5").out.splitlines()) == 5


def test_numbers_that_json_lacks_are_text(tmp_path, as_json):
    table = de.Variable(dim=3, name="odd")
    table.upsert([1], [[float("nan"), float("inf"), -float("inf")]])
    de.checkpoint.save(table, tmp_path)
    assert as_json("cat", tmp_path) == [{"key": 1, "value": ["nan", "inf", "-inf"]}]


@pytest.mark.parametrize("form", ["text", "csv"])
def test_what_a_terminal_would_obey_is_escaped(tmp_path, ran, form, monkeypatch):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    table = de.Variable(dim=1, key_dtype=tf.string, name="hostile")
    table.upsert(["\x1b[2J", "ä"], [[1.0], [2.0]])
    de.checkpoint.save(table, tmp_path)
    printed = ran("cat", tmp_path, "--format", form).out
    assert "\x1b" not in printed
    assert "\\x1b[2J" in printed
    assert "ä" in printed


def test_csv_holds_the_exact_keys_and_values(tmp_path, ran):
    table = de.Variable(tf.string, tf.string, 1, name="words")
    keys = ["a\nb", "a\\nb", "a\rb", "a\u00a0b", 'a,"b', "", "b'\\xff'"]
    table.upsert([*keys, b"\xff"], [[key] for key in [*keys, b"\xff"]])
    keys.append('{"b64": "/w=="}')
    de.checkpoint.save(table, tmp_path / "words")
    output = tmp_path / "words.csv"
    arguments = ["--format", "csv", "--output", str(output)]
    ran("cat", tmp_path / "words", *arguments)
    with output.open(newline="") as file:
        rows = {row["key"]: row["value_0"] for row in csv.DictReader(file)}
    assert rows == dict(zip(keys, keys, strict=True))


def test_csv_and_parquet_hold_all_rows(files, tmp_path, ran):
    for form in ("csv", "parquet"):
        output = str(tmp_path / f"rows.{form}")
        ran("cat", files[0], "--slots", "--format", form, "--output", output)
    with (tmp_path / "rows.csv").open() as file:
        rows = {int(row["key"]): row for row in csv.DictReader(file)}
    assert len(rows) == 1000
    assert float(rows[9]["value_1"]) == 19.0
    made = parquet.read_table(tmp_path / "rows.parquet")
    assert made.num_rows == 1000
    at = made["key"].to_pylist().index(3)
    assert made["value"].to_pylist()[at] == [5.5, 6.5]
    [slot] = [name for name in made.column_names if name.endswith("/momentum")]
    assert made[slot].to_pylist()[at] == [-0.5, -0.5]
    assert [each.name for each in tmp_path.glob("*.tmp-*")] == []


@pytest.mark.parametrize("dtype", [tf.bfloat16, tf.int32, tf.bool, tf.string])
def test_parquet_takes_every_dtype(dtype, tmp_path, ran):
    table = de.Variable(tf.string, dtype, 2, name="t")
    values = tf.constant([["a", "b"]]) if dtype == tf.string else tf.cast([[1, 0]], dtype)
    table.upsert([b"\xff"], values)
    table.save_to_file_system(str(tmp_path), file_name_list=["t"])
    output = str(tmp_path / "t.parquet")
    source = str(tmp_path / "t.de")
    ran("cat", source, "--format", "parquet", "--output", output)
    [row] = parquet.read_table(output).to_pylist()
    wanted = [b"a", b"b"] if dtype == tf.string else [1, 0]
    assert (row["key"], row["value"]) == (b"\xff", wanted)


def test_a_failed_output_leaves_the_old_file(files, tmp_path, refused):
    output = tmp_path / "rows.csv"
    output.write_text("old")
    to_csv = ("--format", "csv", "--output", output)
    assert "Received: no row of -1" in refused("cat", files[0], "--key", "-1", *to_csv)
    assert output.read_text() == "old"
    words = de.Variable(tf.string, dim=1, name="words")
    words.upsert(["a"], [[1.0]])
    words.save_to_file_system(str(tmp_path), file_name_list=["words"])
    both = [files[0], str(tmp_path / "words.de")]
    assert "Choose a table by --table" in refused("cat", *both, *to_csv)
    assert output.read_text() == "old"


def test_cat_merges_a_base_and_its_deltas(table, tmp_path, refused, as_json):
    manager = de.checkpoint.Manager(tf.train.Checkpoint(table=table), str(tmp_path))
    manager.save()
    table.remove([3])
    table.upsert([4], [[0.5, 0.5]])
    prefix = str(manager.save())
    rows = as_json("cat", prefix)
    assert len(rows) == 999
    assert {"key": 4, "value": [0.5, 0.5]} in rows
    refused("cat", prefix, "--key", "3")


def test_a_checkpoint_stands_for_its_files(tmp_path, ran, as_json):
    table = de.Variable(tf.string, dim=1, name="words", devices=["/CPU:0"] * 3)
    table.upsert(["a", b"\xff"], [[1.0], [2.0]])
    de.checkpoint.save(table, tmp_path)
    assert ran("verify", tmp_path).out.count(" whole ") == 3
    assert sorted(ran("cat", tmp_path).out.splitlines()) == ["a\t1", '{"b64": "/w=="}\t2']
    rows = as_json("cat", tmp_path)
    assert {"key": {"b64": "/w=="}, "value": [2.0]} in rows
    ran("cat", tmp_path, "--key", os.fsdecode(base64.b64decode("/w==")))


def test_diff_names_the_keys(files, keras_files, ran, as_json):
    text = ran("diff", *files, status=1).out.splitlines()
    assert text[1:] == [line.lstrip() for line in text[1:]]  # words are aligned left
    lines = [line.split() for line in text]
    assert lines[1:] == [["removed", "1", "7"], ["added", "1", "5000"], ["changed", "1", "8"],
                         ["same", "998"]]  # fmt: skip
    [difference] = as_json("diff", *files, status=1)
    assert difference["keys"]["added"] == [5000]
    ran("diff", files[0], files[0])
    ran("diff", *keras_files[1:])


def test_diff_takes_one_file_of_each_side(tmp_path, ran, refused):
    for step in (1, 2):
        tables = [de.Variable(dim=1, name=name, devices=["/CPU:0"]) for name in ("s", "t")]
        tables[1].upsert([step], [[1.0]])
        de.checkpoint.save(tables, tmp_path / str(step))
    both = [str(tmp_path / "1"), str(tmp_path / "2")]
    assert "pass --table" in refused("diff", *both)
    assert "added" in ran("diff", *both, "--table", "t", status=1).out
    assert "They hold: s, t" in refused("diff", *both, "--table", "u")


def test_a_table_has_its_name_in_the_checkpoint(tmp_path, ran):
    tables = [de.Variable(dim=1, name="same") for _ in range(3)]
    for number, table in enumerate(tables):
        table.upsert([number], [[1.0]])
    de.checkpoint.save({"users": tables[0]}, tmp_path / "one")
    de.checkpoint.save(tables[1:], tmp_path / "two")
    for folder, name, key in (("one", "users", 0), ("one", "same", 0), ("two", "same_1", 2)):
        assert ran("cat", tmp_path / folder, "--table", name).out == f"{key}\t1\n"


def test_a_key_must_have_the_tables_dtype(files, ran, refused):
    assert ran("cat", files[0], "--key", "007").out.startswith("7\t")
    for key in ("seven", str(1 << 63)):
        assert f"Received: --key '{key}'" in refused("cat", files[0], "--key", key)


def test_cat_names_each_key_without_a_row(files, ran):
    assert len(ran("cat", files[0], "--key", "7", "--key", "07").out.splitlines()) == 1
    printed = ran("cat", files[0], "--key", "6", "--key", "-5", status=1)
    assert len(printed.out.splitlines()) == 1
    assert "Received: no row of -5." in printed.err


def test_import_tfra_lists_and_writes_what_the_real_library_saved(tmp_path, ran, refused, as_json):
    source, target = str(ARTEFACTS / "new_adam" / "ckpt"), str(tmp_path / "tables")
    item, user = as_json("import-tfra", source, "--check")
    assert item["table"] == "item-parameter"
    wanted = {"key_dtype": "int64", "value_dtype": "float32", "dim": 3, "shards": 3}
    assert user == {
        "table": "user-parameter",
        **wanted,
        "rows": 25,
        "slots": ["m", "v"],
        "policies": [],
    }
    printed = ran("import-tfra", source, target)
    assert "user-parameter" in printed.out
    assert "slots are left out" in printed.err
    table = de.Variable(dim=3, name="user-parameter")
    assert de.checkpoint.restore(table, target) == {"user-parameter": 25}
    assert "must not exist" in refused("import-tfra", source, target)
    assert "--check" in refused("import-tfra", source)


def test_keys_come_in_the_order_of_their_hashes(tmp_path, monkeypatch):
    monkeypatch.setattr("de_core.snapshot.file._STEP_BYTES", 1)  # a batch per section
    for name, dtype in (("ints", tf.int64), ("strings", tf.string)):
        table = de.Variable(dtype, dim=64, name=name)
        keys = tf.range(-3000, 3000, dtype=tf.int64)
        if dtype == tf.string:  # of up to 22 bytes: three words
            keys = tf.strings.as_string(keys) + "x" * 17
        table.upsert(keys, tf.zeros([6000, 64]))
        table.save_to_file_system(str(tmp_path), file_name_list=[name])
        file = SnapshotFile(str(tmp_path / f"{name}.de"))
        last, batches = np.uint64(0), list(file.batches())
        assert len(batches) > 1
        for batch in batches:
            found = hashes(batch.keys)
            assert found.min() >= last
            last = found.max()
