"""Models over tables on parameter servers reach the same values as models over dense variables."""

import pytest

from tests.distributed.support.processes import PROGRAMS, result_of


@pytest.mark.parametrize("behavior", ["v2", pytest.param("v1", marks=pytest.mark.slow)])
def test_models_train_as_over_dense_variables(forks, behavior):
    done = forks.file(PROGRAMS / "model_worker.py", behavior)
    assert done.returncode == 0, done.stderr
    found = result_of(done.stdout)
    assert len(found) == 4
    for name, numbers in found.items():
        assert numbers["difference"] < 1e-5, (name, numbers)
        assert numbers["moved"] > 1e-3, (name, numbers)
