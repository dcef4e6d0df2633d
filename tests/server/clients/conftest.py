"""An environment with the clients' packages."""

import shutil
import sys
from pathlib import Path

import pytest

from tests.server.support.gateway_process import run

REQUIREMENTS = Path(__file__).with_name("requirements.txt")


@pytest.fixture(scope="session")
def clients_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment with the packages of `requirements.txt`."""
    folder = tmp_path_factory.mktemp("clients") / "environment"
    python = folder / "bin" / "python"
    uv = shutil.which("uv")
    if uv:
        run(uv, "venv", "--quiet", "--python", sys.executable, folder)
        run(uv, "pip", "install", "--quiet", "--python", python, "-r", REQUIREMENTS)
    else:
        run(sys.executable, "-m", "venv", folder)
        run(python, "-m", "pip", "install", "--quiet", "-r", REQUIREMENTS)
    return python
