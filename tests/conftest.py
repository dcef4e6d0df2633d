"""What every test needs before TensorFlow is imported, and what several folders share."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import hypothesis
import pytest

ROOT = Path(__file__).resolve().parents[1]
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

# Where a change is judged the examples are the same each time; elsewhere they are new ones.
hypothesis.settings.register_profile("ci", derandomize=True)
if os.environ.get("CI"):
    hypothesis.settings.load_profile("ci")


@pytest.fixture(scope="session")
def run_python():
    """Runs Python source in another process and returns what it printed."""

    def run(source: str, *arguments: object) -> str:
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(source), *map(str, arguments)],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-4000:]
        return done.stdout

    return run
