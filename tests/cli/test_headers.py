"""`de-core inspect` describes files of every kind; `--help` and `version` need no TensorFlow."""

from __future__ import annotations

import re
import shutil
import sys

import tensorflow as tf

import de_core as de
from tests.support.commands import ROOT, run


def imported(*arguments):
    """Returns the top packages that a run of the command imports, and its output."""
    done = run(sys.executable, "-X", "importtime", "-m", "de_core_cli", *arguments)
    assert done.returncode == 0, done.stderr
    names = re.findall(r"^import time:.*\| +(\S+)$", done.stderr, re.MULTILINE)
    return {name.partition(".")[0] for name in names}, done.stdout


def test_plan_help_and_the_version_need_no_tensorflow():
    plan = ["plan", "--rows", "9", "--dim", "2"]
    for arguments in (plan, ["--help"], ["cat", "--help"], ["version"]):
        packages, out = imported(*arguments)
        assert ("memory" if arguments == plan else "de-core") in out
        assert "de_core_cli" in packages
        assert packages.isdisjoint({"tensorflow", "keras", "numpy", "de_core"})


def test_inspect_shows_a_table_of_files_and_the_fields_of_one(files, command):
    done = command("inspect", *files)
    lines = done.stdout.splitlines()
    assert lines[0].split() == [
        *("table", "shard", "kind", "keys", "values", "rows", "removed", "bytes", "file")
    ]
    assert "1,000" in lines[1]
    one = command("inspect", files[0]).stdout
    for part in ("float32[2]", "1,000", "/momentum float32[2]", "UTC", "partition"):
        assert part in one


def test_inspect_tells_int32_keys_from_int64(tmp_path, ran):
    for dtype in (tf.int32, tf.int64):
        de.checkpoint.save(de.Variable(dtype, dim=1, name=dtype.name), tmp_path / dtype.name)
        lines = ran("inspect", tmp_path / dtype.name).out.splitlines()
        assert ["keys", dtype.name] in map(str.split, lines)


def test_inspect_describes_the_tables_of_directories_and_keras_files(
    table, keras_files, tmp_path, as_json
):
    de.checkpoint.save(table, tmp_path / "saved")
    version = de.publish(keras_files[0], tmp_path / "published")
    paths = [tmp_path / "saved", version, tmp_path / "published", *keras_files[1:]]
    found = as_json("inspect", *paths)
    assert [each["rows"] for each in found] == [1000, 50, 50, 50, 50]
    assert [each["metadata"]["table"] for each in found] == ["users", *["emb"] * 4]
    inside = "layers/embedding/params/table_0"
    assert [each["file"] for each in found[3:]] == [f"{each}:{inside}" for each in paths[3:]]


def test_pieces_of_a_keras_file_are_joined(keras_files, tmp_path):
    from de_core_cli import keras_file

    with keras_file.opened(str(keras_files[1])) as file:
        [[dataset]] = keras_file.shards(file).values()
        data = dataset[...]
        keras_file.extract([data[:100], data[100:131], data[131:]], tmp_path / "x.de")
    assert (tmp_path / "x.de").read_bytes() == data.tobytes()


def test_an_installed_package_serves_or_says_how_to_install(tmp_path):
    """Copies the package away from the checkout, where no gateway lies beside it."""
    shutil.copytree(ROOT / "de_core_cli", tmp_path / "de_core_cli")
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); "
    code += "from de_core_cli.main import main; sys.exit(main(['serve', '--help']))"
    done = run(sys.executable, "-S", "-c", code, cwd=tmp_path)  # without installed packages
    assert done.returncode == 1
    assert "pip install 'de-core[server]'" in done.stderr
    assert done.stderr.count("\n") == 1
