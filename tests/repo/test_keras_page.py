"""The code blocks of docs/reference/keras.md run."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.repo.test_readme import blocks

HEADING = "## With tf_keras"


@pytest.mark.parametrize("legacy", [False, True])
def test_the_blocks_of_the_page_run(root: Path, tmp_path: Path, legacy: bool):
    if legacy and importlib.util.find_spec("tf_keras") is None:
        pytest.skip("tf_keras is not installed")
    page = (root / "docs" / "reference" / "keras.md").read_text("utf-8")
    keras_3, _, tf_keras = page.partition(HEADING)
    code = "\n".join(blocks(tf_keras if legacy else keras_3, "python"))
    assert code
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={
            **os.environ,
            "PYTHONPATH": str(root),
            "TF_CPP_MIN_LOG_LEVEL": "2",
            "TF_USE_LEGACY_KERAS": str(int(legacy)),
        },
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
