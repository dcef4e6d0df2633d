"""Bad input gives one line on standard error and exit status 1, or 2 for wrong usage."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

import de_core as de
from tests.cli.conftest import COMMAND, ROOT

PLAN = ["plan", "--rows", "9", "--dim", "2"]


def assert_one_line(done, *parts):
    assert done.returncode == 1, done.stderr
    assert done.stderr.startswith("de-core: ")
    assert done.stderr.count("\n") == 1, done.stderr
    assert done.stdout == ""
    for part in parts:
        assert part in done.stderr


@pytest.mark.parametrize("verb", ["inspect", "cat"])
def test_a_path_that_does_not_exist(verb, command):
    assert_one_line(command(verb, "/no/such.de"), "Received: '/no/such.de'")


@pytest.mark.parametrize("path", ["", "/"])
def test_a_path_of_nothing(path, command):
    assert_one_line(command("inspect", path), "must be a file", f"Received: {path!r}")


def test_files_that_are_no_snapshot_files(files, tmp_path, command):
    (tmp_path / "no.de").write_bytes(b"nothing of a snapshot")
    assert_one_line(command("inspect", tmp_path / "no.de"), "no.de", "is not a snapshot")
    (tmp_path / "empty.de").write_bytes(b"")
    assert_one_line(command("cat", tmp_path / "empty.de"), "empty.de", "truncated")
    (tmp_path / "short.de").write_bytes(Path(files[0]).read_bytes()[:5000])
    assert_one_line(command("inspect", tmp_path / "short.de"), "short.de", "truncated")
    (tmp_path / "folder").mkdir()
    assert_one_line(command("inspect", tmp_path / "folder"), "must contain a whole checkpoint")


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("assets/*.chain", "end 2\n", ""),
        ("assets/*.chain", "end 2\n", "end 2"),
        ("assets/*.chain", "chain 1", "chain 2"),
        ("assets/*.chain", "\n", "\r\n"),
        ("assets.extra/de_manifest", "manifest 1", "manifest 2"),
        ("MANIFEST", "}", ""),
        ("MANIFEST", "users", "User5"),
    ],
)
def test_a_damaged_list_of_files_is_named(name, old, new, keras_files, table, tmp_path, ran):
    source = tmp_path / "2"
    if name == "MANIFEST":
        de.checkpoint.save(table, source)
    else:
        for _ in range(2):
            de.publish(keras_files[0], tmp_path)
    [file] = source.glob(name)
    file.write_bytes(file.read_bytes().replace(old.encode(), new.encode()))
    for arguments in (["inspect", source], ["cat", source], ["diff", source, source]):
        said = ran(*arguments, status=1)
        assert said.out == ""
        assert f"Received: {'damaged file ' * (name == 'MANIFEST')}{str(file)!r}" in said.err


def test_keras_files_that_are_damaged_or_hold_no_table(keras_files, tmp_path, command):
    data = keras_files[1].read_bytes()
    (tmp_path / "half.keras").write_bytes(data[: len(data) // 2])
    assert_one_line(command("inspect", tmp_path / "half.keras"), "half.keras")
    weights = keras_files[2].read_bytes()
    (tmp_path / "half.h5").write_bytes(weights[: len(weights) // 2])
    assert_one_line(command("inspect", tmp_path / "half.h5"), "A Keras file must be whole")


def test_wrong_usage_exits_with_2(command, files):
    for arguments in (
        [],
        ["bad"],
        ["inspect"],
        ["cat", "--wrong", files[0]],
        ["cat", files[0], "--format", "parquet"],
        ["cat", files[0], "--json", "--format", "csv"],
        ["cat", files[0], "--limit", "-1"],
        ["diff", *files, "--limit", "-1"],
        ["rm-key", files[0], "x.de"],
        ["publish", "add"],
        ["import-tfra", "a", "b", "--dim", "0"],
        ["convert", "a", "b", "--version", "0"],
    ):
        done = command(*arguments)
        assert done.returncode == 2
        assert done.stderr.startswith("usage: de-core")
        assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "verb",
    [
        PLAN,
        pytest.param(["cat", "FILE"], marks=pytest.mark.slow),  # imports TensorFlow
        pytest.param(["cat", "--json", "FILE"], marks=pytest.mark.slow),
    ],
)
def test_a_reader_that_stops_reading_is_no_error(files, verb):
    """`de-core cat users.de | head -1`."""
    variables = {**os.environ, "PYTHONPATH": str(ROOT)}
    arguments = [files[0] if each == "FILE" else each for each in verb]
    with subprocess.Popen(
        [*COMMAND, *arguments], env=variables, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as done:
        assert done.stdout is not None
        assert done.stderr is not None
        done.stdout.close()
        assert done.stderr.read() == b""
        assert done.wait() == 0


def test_a_full_disk_is_one_line():
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [*COMMAND, *PLAN],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode == 1
    assert done.stderr == "de-core: [Errno 28] No space left on device\n"


def test_every_verb_teaches_by_examples(command):
    verbs = "inspect verify diff cat publish import-tfra convert rm-key plan doctor version"
    for verb in verbs.split():
        done = command(verb, "--help")
        assert done.returncode == 0
        assert "examples:\n" in done.stdout
        assert f"    de-core {verb}" in done.stdout


def test_serve_passes_its_flags_to_the_gateway(command):
    done = command("serve", "--help")
    assert done.returncode == 0
    assert "--model-dir" in done.stdout
    assert done.stdout.startswith("usage: de-core serve ")
    assert "\n  de-core serve --model-dir models/ranker\n" in done.stdout
