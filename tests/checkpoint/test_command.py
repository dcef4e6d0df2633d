"""Tests the command `python -m de_core.checkpoint`."""

import json
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf

import de_core as de
from de_core.checkpoint.__main__ import main
from de_core.snapshot.file import SnapshotFile, hashes


@pytest.fixture
def files(tmp_path):
    """Saves a table with slots twice. In between one row is added, one removed, one changed."""
    table = de.Variable(dim=2, name="users")
    table.upsert(np.arange(1000), np.arange(2000, dtype=np.float32).reshape(1000, 2))
    optimizer = de.DynamicEmbeddingOptimizer(keras.optimizers.SGD(0.5, momentum=0.5))
    optimizer.build(table.trainable_variables)
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(de.embedding_lookup(table, [3]))
    gradients = tape.gradient(loss, table.trainable_variables)
    optimizer.apply_gradients(zip(gradients, table.trainable_variables, strict=True))
    table.save_to_file_system(str(tmp_path), file_name_list=["a"])
    table.remove([7])
    table.upsert([8, 5000], [[0.25, 0.5], [1.0, 1.0]])
    table.save_to_file_system(str(tmp_path), file_name_list=["b"])
    return str(tmp_path / "a.de"), str(tmp_path / "b.de")


def test_inspect_says_what_a_file_holds(files, capsys):
    assert main(["inspect", *files]) == 0
    text = capsys.readouterr().out
    for part in ("'users'", "int64 -> float32[2]", "1,000 rows", "/momentum float32[2]", "0/1"):
        assert part in text
    assert main(["inspect", "--json", files[0]]) == 0
    assert json.loads(capsys.readouterr().out)["rows"] == 1000


def test_verify_finds_every_damaged_file(files, capsys):
    assert main(["verify", *files]) == 0
    assert capsys.readouterr().out.count("whole:") == 2
    with Path(files[1]).open("r+b") as file:
        file.seek(5000)
        byte = file.read(1)
        file.seek(5000)
        file.write(bytes([byte[0] ^ 1]))
    assert main(["verify", *files]) == 1
    [damaged] = [each for each in capsys.readouterr().out.splitlines() if "damaged" in each]
    assert damaged.startswith(f"damaged: {files[1]}: {files[1]}")
    assert "[Op:" not in damaged


def test_cat_prints_rows_as_text_and_as_json(files, capsys):
    assert main(["cat", files[0], "--key", "3", "--key", "4", "--slots"]) == 0
    lines = dict(line.split("\t", 1) for line in capsys.readouterr().out.splitlines())
    assert lines["4"].startswith("8 9\t")
    assert lines["3"].startswith("5.5 6.5\t")
    assert lines["3"].endswith("/momentum=-0.5 -0.5")
    assert main(["cat", files[0], "--json"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert sorted(row["key"] for row in rows) == list(range(1000))
    assert {"key": 9, "value": [18.0, 19.0]} in rows
    assert main(["cat", files[0], "--limit", "5"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 5


def test_diff_names_the_keys(files, capsys):
    assert main(["diff", *files]) == 1
    text = capsys.readouterr().out
    assert "removed: 1: 7\n" in text
    assert "added: 1: 5000\n" in text
    assert "changed: 1: 8\n" in text
    assert "same: 998" in text
    assert main(["diff", files[0], files[0]]) == 0


def test_a_checkpoint_stands_for_its_files(tmp_path, capsys):
    table = de.Variable(tf.string, dim=1, name="words", devices=["/CPU:0"] * 3)
    table.upsert(["a", b"\xff"], [[1.0], [2.0]])
    de.checkpoint.save(table, tmp_path)
    assert main(["verify", str(tmp_path)]) == 0
    assert capsys.readouterr().out.count("whole:") == 3
    assert main(["cat", str(tmp_path)]) == 0
    assert sorted(capsys.readouterr().out.splitlines()) == ["a\t1", "b'\\xff'\t2"]


def test_diff_takes_checkpoints_of_one_file(tmp_path, capsys):
    table = de.Variable(dim=1, name="t", devices=["/CPU:0"])
    for step in (1, 2):
        table.upsert([step], [[1.0]])
        de.checkpoint.save(table, tmp_path / str(step))
    assert main(["diff", str(tmp_path / "1"), str(tmp_path / "2")]) == 1
    assert "added: 1: 2" in capsys.readouterr().out
    several = de.Variable(dim=1, name="t", devices=["/CPU:0"] * 2)
    several.upsert([1, 2, 3], tf.ones([3, 1]))
    de.checkpoint.save(several, tmp_path / "several")
    assert main(["diff", str(tmp_path / "1"), str(tmp_path / "several")]) == 2
    assert "Name one of the files" in capsys.readouterr().err


def test_keys_that_no_file_has_are_said(files, capsys):
    assert main(["cat", *files[:1], "--key", "007", "--key", "-5"]) == 0
    out, err = capsys.readouterr()
    assert out.startswith("7\t")
    assert "no row: -5" in err
    assert main(["cat", *files[:1], "--key", "seven"]) == 2
    assert "must be integers. Received: --key 'seven'" in capsys.readouterr().err


def test_unreadable_input_exits_with_status_2(tmp_path, capsys):
    (tmp_path / "no.de").write_bytes(b"nothing")
    for path in (tmp_path / "no.de", tmp_path / "absent.de"):
        assert main(["inspect", str(path)]) == 2
        assert path.name in capsys.readouterr().err


def test_help_explains_the_command(capsys):
    with pytest.raises(SystemExit):
        main(["--help"])
    text = capsys.readouterr().out
    assert "examples:" in text
    assert "exit status:" in text


def test_runs_as_a_module(run_python):
    program = "import runpy, sys; sys.argv = ['snapshot', '--help']; "
    program += "\ntry:\n    runpy.run_module('de_core.checkpoint', run_name='__main__')\n"
    program += "except SystemExit as exit:\n    print('status', exit.code)"
    assert "status 0" in run_python(program)


def test_keys_come_in_the_order_of_their_hashes(tmp_path):
    for name, dtype in (("ints", tf.int64), ("strings", tf.string)):
        table = de.Variable(dtype, dim=64, name=name)
        keys = tf.range(-3000, 3000, dtype=tf.int64)
        keys = tf.strings.as_string(keys) if dtype == tf.string else keys
        table.upsert(keys, tf.zeros([6000, 64]))
        table.save_to_file_system(str(tmp_path), file_name_list=[name])
        file = SnapshotFile(str(tmp_path / f"{name}.de"))
        last = np.uint64(0)
        for batch in file.batches():
            found = hashes(batch.keys)
            assert found.min() >= last
            last = found.max()
