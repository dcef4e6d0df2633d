"""The committed files are those that the real tfra writes, and fresh ones are imported alike."""

import json
from pathlib import Path

import pytest
import tensorflow as tf

from tests.tfra.wheel import run_wheel
from tests.tfra_files.artefacts import DATA, expected
from tests.tfra_files.test_continued_training import QUICK, SLOW, differences

pytestmark = pytest.mark.slow
#: tfra 0.6.0 wrote it.
OLD = "old_adam"
PROGRAM = Path(__file__).parent / "data" / "make_artefacts.py"


@pytest.fixture(scope="module")
def fresh(tmp_path_factory):
    folder = tmp_path_factory.mktemp("artefacts")
    run_wheel(PROGRAM, folder, timeout=3600)
    return folder


def files_of(folder):
    return {path.relative_to(folder).as_posix(): path for path in folder.rglob("*.*")} | {
        path.relative_to(folder).as_posix(): path for path in folder.rglob("*-keys")
    }


def assert_near(found, wanted):
    if isinstance(wanted, dict):
        assert sorted(found) == sorted(wanted)
        for name, each in wanted.items():
            if name == "time":  # each run has its own
                assert found[name]["keys"] == each["keys"]
            else:
                assert_near(found[name], each)
    elif isinstance(wanted, list):
        assert len(found) == len(wanted)
        for each, other in zip(found, wanted, strict=True):
            assert_near(each, other)
    elif isinstance(wanted, float):
        assert found == pytest.approx(wanted, rel=1e-5, abs=1e-6)
    else:
        assert found == wanted


def test_the_committed_files_are_those_that_the_library_writes(fresh):
    theirs = files_of(fresh)
    ours = {name: path for name, path in files_of(DATA).items() if not name.startswith(OLD)}
    assert sorted(ours) == sorted(theirs)
    wanted = {name: each for name, each in expected().items() if name != OLD}
    assert_near(json.loads((fresh / "expected.json").read_text()), wanted)
    for name in ours:
        if name.endswith(".index"):
            tensors = [
                tf.train.list_variables(str(folder / name.removesuffix(".index")))
                for folder in (DATA, fresh)
            ]
            assert tensors[0] == tensors[1]


def test_training_continues_after_the_import_of_fresh_files(fresh, forks):
    found = differences(forks, fresh, [each for each in (*QUICK, *SLOW) if each != OLD])
    assert max(found.values()) < 1e-5, found


# TensorFlow 2.15's Adam is a new one; the older release knows only what is legacy now.
@pytest.mark.parametrize(("release", "form"), [("0.7.2", "new_adam"), ("0.6.0", OLD)])
def test_training_continues_after_the_import_from_an_older_release(forks, tmp_path, release, form):
    run_wheel(PROGRAM, tmp_path, form, release=release)
    assert differences(forks, tmp_path, [form])[form] < 1e-5
