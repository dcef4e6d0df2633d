import os
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
# Python finds modules beside a script. The tests need the same path.
if str(EXAMPLES) not in sys.path:
    sys.path.insert(0, str(EXAMPLES))


@pytest.fixture
def run(forks):
    """Runs a script of the examples in another process."""

    def run(script, *arguments):
        environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "-1"}
        return forks.file(EXAMPLES / script, *arguments, cwd=Path.cwd(), env=environment)

    return run
