"""Models over tables on parameter servers reach the same values as models over dense variables."""

import pytest

from tests.distributed.programs.models import MODELS
from tests.distributed.support.processes import PROGRAMS, result_of


@pytest.mark.parametrize(
    "program",
    [
        ["model_worker.py", "v2"],
        pytest.param(["model_worker.py", "v1"], marks=pytest.mark.slow),
        pytest.param(["model_coordinator.py"], marks=pytest.mark.slow),
    ],
)
def test_models_train_as_over_dense_variables(forks, program):
    file, *arguments = program
    done = forks.file(PROGRAMS / file, *arguments)
    assert done.returncode == 0, done.stderr
    found = result_of(done.stdout)
    assert list(found) == [model.__name__ for model in MODELS]
    for name, numbers in found.items():
        assert numbers["difference"] < 1e-5, (name, numbers)
        assert numbers["moved"] > 1e-3, (name, numbers)
