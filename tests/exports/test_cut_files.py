"""A served file that is cut short in place ends neither its process nor the other models."""

import json
import signal
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

import de_core as de
from tests.exports.test_publish_faults import Scores
from tests.support.commands import ROOT, run

# Reports on standard output. faulthandler's handler is there before the one of the served files.
SERVER = """
    import faulthandler, json, mmap, os, resource, sys

    faulthandler.enable()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    import tensorflow as tf
    import de_core
    from de_core.base.ops import library

    cut, whole = (tf.saved_model.load(path) for path in sys.argv[1:3])
    (file,) = sys.argv[3:]
    ids = tf.range(3000, dtype=tf.int64)

    def ask(model):
        try:
            return model.signatures["de_lookup/users"](ids=ids)["embeddings"].numpy().sum().item()
        except tf.errors.DataLossError as error:
            return error.message

    def told(model):
        (text,) = model.signatures["de_stats"]().values()
        (table,) = json.loads(text.numpy())
        return table["health"], table.get("damage", "")

    answers = [ask(cut), ask(whole)]
    os.truncate(file, os.path.getsize(file) // 4)
    answers += [ask(cut), ask(cut), ask(whole), told(cut), told(whole)]
    print(json.dumps(answers), flush=True)

    with open(file, "r+b") as mine:
        mine.truncate(1 << 16)
        mapped = mmap.mmap(mine.fileno(), 0)
        mine.truncate(0)
        mapped[0]
"""


def test_its_lookups_fail_the_other_models_answer_and_a_foreign_fault_is_passed_on(tmp_path):
    paths = [Path(de.export(Scores(), tmp_path / name)) for name in ("cut", "whole")]
    (file,) = (paths[0] / "assets").glob("*.de")
    command = [sys.executable, "-c", textwrap.dedent(SERVER), *paths, file]
    done = run(*command, PYTHONPATH=str(ROOT), TF_CPP_MIN_LOG_LEVEL="1")
    assert done.stdout, done.stderr
    before, other, cut, again, whole, told_cut, told_whole = json.loads(done.stdout)
    rows = 3000 * 8
    assert (before, other, whole) == (rows, rows, rows)
    for text in (cut, again, told_cut[1]):
        assert file.name in text
        assert "was cut short or overwritten" in text
        assert str(tmp_path) not in text
    assert [told_cut[0], told_whole] == ["damaged", ["intact", ""]]
    assert f"{file} is damaged" in done.stderr  # the log names the version's folder
    assert done.returncode == -signal.SIGBUS
    assert "Fatal Python error: Bus error" in done.stderr


@pytest.mark.parametrize("cut", ["rows", "last byte", "written again"])
def test_a_cut_is_found_by_the_next_lookup(tmp_path, cut):
    path = Path(de.export(Scores(), tmp_path))
    loaded = tf.saved_model.load(str(path))
    look_up = loaded.signatures["de_lookup/users"]
    ids = tf.constant([1], tf.int64)
    np.testing.assert_array_equal(look_up(ids=ids)["embeddings"], np.ones([1, 8]))
    (file,) = (path / "assets").glob("*.de")
    content = file.read_bytes()
    with file.open("r+b") as opened:
        opened.truncate(len(content) - 1 if cut == "last byte" else 4096)
        if cut == "written again":
            opened.write(bytes(len(content)))
    with pytest.raises(tf.errors.DataLossError, match=file.name):
        look_up(ids=ids)
    file.write_bytes(content)
    with pytest.raises(tf.errors.DataLossError, match=file.name):
        look_up(ids=ids)
