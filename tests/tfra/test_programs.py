"""Programs in the style of `tfra` train to the same numbers as with the real wheel."""

import json
import os
from pathlib import Path

import numpy as np
import pytest

from tests.support.forks import Forks
from tests.tfra.record import NAMES, PROGRAMS, RESULTS, results_of_the_wheel

#: Runs all programs in one process, because TensorFlow's import takes longer than a program.
RUN_ALL = """
import runpy, sys
from de_core.tfra import alias

alias.install()
folder, results, *names = sys.argv[1:]
sys.path[0] = folder
for name in names:
    sys.argv = [name, f"{results}/{name}.json"]
    runpy.run_path(f"{folder}/{name}.py", run_name="__main__")
"""


def run_here(
    forks: Forks, folder: Path, *names: str, legacy: bool
) -> dict[str, dict[str, list[float]]]:
    """Runs programs with `de_core.tfra`, and returns what they wrote."""
    environment = {**os.environ, "TF_USE_LEGACY_KERAS": str(int(legacy))}
    done = forks.source(RUN_ALL, PROGRAMS, folder, *names, env=environment)
    assert done.returncode == 0, done.stderr[-4000:]
    return {name: json.loads((folder / f"{name}.json").read_text("utf-8")) for name in names}


@pytest.fixture(scope="module")
def ours(forks, tmp_path_factory):
    return run_here(forks, tmp_path_factory.mktemp("results"), *NAMES, legacy=True)


def check_equal(given: dict[str, list[float]], expected: dict[str, list[float]]) -> None:
    assert given.keys() == expected.keys()
    for name, values in expected.items():
        np.testing.assert_allclose(given[name], values, rtol=1e-5, atol=1e-5, err_msg=name)


@pytest.mark.parametrize("name", NAMES)
def test_a_program_trains_as_the_recorded_run_of_the_real_wheel(name, ours):
    recorded = json.loads(RESULTS.read_text("utf-8"))[name]
    losses = recorded["losses"]
    assert np.mean(losses[-5:]) < np.mean(losses[:5])  # the program learns something
    check_equal(ours[name], recorded)


def test_a_keras_program_trains_to_the_same_numbers_with_keras_3(forks, tmp_path):
    results = run_here(forks, tmp_path, "movielens", legacy=False)
    check_equal(results["movielens"], json.loads(RESULTS.read_text("utf-8"))["movielens"])


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_the_recorded_run_is_that_of_the_real_wheel(name, tmp_path, ours):
    wheel = results_of_the_wheel(name, tmp_path)
    check_equal(wheel, json.loads(RESULTS.read_text("utf-8"))[name])
    check_equal(ours[name], wheel)
