"""`de-core inspect` reads headers without TensorFlow, and says the same as the ops."""

from __future__ import annotations

import json
import re
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

import de_core as de
from de_core.snapshot.file import about
from de_core_cli import sources
from de_core_cli.library import CommandError
from de_core_cli.main import main
from tests.support.commands import ROOT, run


def imported(*arguments):
    """Returns the top packages that a run of the command imports, and its output."""
    done = run(sys.executable, "-X", "importtime", "-m", "de_core_cli", *arguments)
    assert done.returncode == 0, done.stderr
    names = re.findall(r"^import time:.*\| +(\S+)$", done.stderr, re.MULTILINE)
    return {name.partition(".")[0] for name in names}, done.stdout


def test_headers_help_and_the_version_need_no_tensorflow(files):
    inspecting = (["inspect", files[0]], ["inspect", "--json", files[0]])
    for arguments in (*inspecting, ["--help"], ["cat", "--help"], ["version"]):
        packages, out = imported(*arguments)
        assert ("users" if arguments in inspecting else "de-core") in out
        assert "de_core_cli" in packages
        assert packages.isdisjoint({"tensorflow", "keras", "numpy", "de_core"})


def test_headers_inside_of_directories_and_keras_files_need_no_tensorflow(
    table, keras_files, tmp_path
):
    de.checkpoint.save(table, tmp_path / "saved")
    version = de.publish(keras_files[0], tmp_path / "published")
    paths = [tmp_path / "saved", version, tmp_path / "published", *keras_files[1:]]
    packages, out = imported("inspect", "--json", *paths)
    found = [json.loads(line) for line in out.splitlines()]
    assert [each["rows"] for each in found] == [1000, 50, 50, 50, 50]
    assert packages.isdisjoint({"tensorflow", "keras", "de_core"})


@pytest.mark.parametrize(
    ("key", "value", "initializer"),
    [
        (tf.int64, tf.float32, "zeros"),
        (tf.int64, tf.bfloat16, "uniform"),
        (tf.string, tf.float64, "truncated_normal"),
        (tf.string, tf.int32, 3),
        (tf.int64, tf.bool, "zeros"),
    ],
)
def test_a_header_says_what_the_op_says(key, value, initializer, tmp_path):
    table = de.Variable(key, value, 3, name="tä", initializer=initializer)
    keys = tf.strings.as_string(tf.range(9)) if key == tf.string else tf.range(9, dtype=key)
    table.upsert(keys, tf.cast(tf.ones([9, 3]), value))
    table.save_to_file_system(str(tmp_path), file_name_list=["t"])
    path = str(tmp_path / "t.de")
    assert sources.Source(path).header().info == about(path)


def test_headers_of_deltas_slots_and_stored_dtypes_say_what_the_op_says(
    table, keras_files, tmp_path
):
    manager = de.checkpoint.Manager(tf.train.Checkpoint(table=table), str(tmp_path / "m"))
    manager.save()
    table.remove([3])
    prefix = manager.save()
    found = sources.find(str(prefix))
    found += sources.find(de.export(keras_files[0], tmp_path / "e", dtype="int8"))
    assert [each.header().info["kind"] for each in found] == ["base", "delta", "base"]
    assert found[2].header().info["value_dtype"] == "int8"
    for each in found:
        assert each.header().info == about(each.path)


def test_every_truncation_and_every_flipped_bit_of_a_header_is_noticed(files, tmp_path):
    data = Path(files[0]).read_bytes()
    header_bytes = int.from_bytes(data[16:24], "little")
    copy = tmp_path / "copy.de"
    used = [*range(header_bytes), *range(len(data) - 128, len(data) - 8)]
    for at in used:
        copy.write_bytes(data[:at] + bytes([data[at] ^ 4]) + data[at + 1 :])
        with pytest.raises(CommandError, match="snapshot file"):
            sources.Source(str(copy)).header()
    for size in (0, 7, 8, 127, 128, 255, header_bytes, len(data) // 2, len(data) - 1):
        copy.write_bytes(data[:size])
        with pytest.raises(CommandError, match="snapshot file"):
            sources.Source(str(copy)).header()


def test_a_newer_format_is_refused_with_the_remedy(files, tmp_path):
    data = bytearray(Path(files[0]).read_bytes())
    data[8] = 9
    from de_core_cli.header import _crc32c

    data[124:128] = _crc32c(bytes(data[:124])).to_bytes(4, "little")
    (tmp_path / "new.de").write_bytes(data)
    with pytest.raises(CommandError, match=r"of version 9\. Install a newer de-core"):
        sources.Source(str(tmp_path / "new.de")).header()


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


def test_inspect_tells_int32_keys_from_int64(tmp_path, capsys):
    for dtype in (tf.int32, tf.int64):
        de.checkpoint.save(de.Variable(dtype, dim=1, name=dtype.name), tmp_path / dtype.name)
        assert main(["inspect", str(tmp_path / dtype.name)]) == 0
        assert ["keys", dtype.name] in map(str.split, capsys.readouterr().out.splitlines())


def test_pieces_of_a_keras_file_are_read_across_their_borders(keras_files, tmp_path):
    from de_core_cli import keras_file

    with keras_file.opened(str(keras_files[1])) as file:
        [(name, [dataset])] = keras_file.shards(file).items()
        data = dataset[...]
        parts = [data[:100], data[100:131], data[131:]]
        read_at, size = keras_file.reader(parts)
        assert size == len(data)
        for first, count in ((0, 128), (90, 50), (130, 9000), (len(data) - 5, 5)):
            assert read_at(first, count) == data[first : first + count].tobytes()
        keras_file.extract(parts, tmp_path / "x.de")
    assert about(str(tmp_path / "x.de"), verified=True)["metadata"]["table"] == "emb"
    assert np.frombuffer((tmp_path / "x.de").read_bytes(), np.uint8).tolist() == data.tolist()
    assert name == "layers/embedding/params/table_0"


def test_an_installed_package_serves_or_says_how_to_install(tmp_path):
    """Copies the package away from the checkout, where no gateway lies beside it."""
    shutil.copytree(ROOT / "de_core_cli", tmp_path / "de_core_cli")
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); "
    code += "from de_core_cli.main import main; sys.exit(main(['serve', '--help']))"
    done = run(sys.executable, "-S", "-c", code, cwd=tmp_path)  # without installed packages
    assert done.returncode == 1
    assert "pip install 'de-core[server]'" in done.stderr
    assert done.stderr.count("\n") == 1
