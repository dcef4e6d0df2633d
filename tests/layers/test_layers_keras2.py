"""Runs the tests of Keras models again, in a process with tf_keras."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    "file",
    [
        "layers/test_layers.py",
        pytest.param("layers/test_summary.py", marks=pytest.mark.slow),
        pytest.param("layers/test_embedding_collection.py", marks=pytest.mark.slow),
        pytest.param("layers/test_rebuilt_models.py", marks=pytest.mark.slow),
        pytest.param("tfra/api/test_training.py", marks=pytest.mark.slow),
        pytest.param("variable/test_weight_values.py", marks=pytest.mark.slow),
    ],
)
def test_the_same_layers_work_in_tf_keras(file):
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:xdist",
            f"tests/{file}",
        ],
        cwd=ROOT,
        env={**os.environ, "TF_USE_LEGACY_KERAS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    assert "passed" in done.stdout
