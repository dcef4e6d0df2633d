"""Runs the tests of Keras models again, in a process with tf_keras."""

import os

import pytest


@pytest.mark.parametrize(
    "file",
    [
        "layers/test_summary.py",
        pytest.param("layers/test_layers.py", marks=pytest.mark.slow),
        pytest.param("layers/test_embedding_collection.py", marks=pytest.mark.slow),
        pytest.param("layers/test_rebuilt_models.py", marks=pytest.mark.slow),
        pytest.param("tfra/api/test_training.py", marks=pytest.mark.slow),
        pytest.param("variable/test_weight_values.py", marks=pytest.mark.slow),
    ],
)
def test_the_same_layers_work_in_tf_keras(forks, file):
    done = forks.module(
        "pytest",
        *("-q", "-p", "no:xdist", f"tests/{file}"),
        env={**os.environ, "TF_USE_LEGACY_KERAS": "1"},
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    assert "passed" in done.stdout
