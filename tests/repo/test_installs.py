"""Each way of installing the sources works, inside and outside of the checkout.

`test_wheels.py` installs the wheels.
"""

import sys
from pathlib import Path

import pytest

from tests.support.fresh_environment import FreshEnvironment, copy_of_checkout, run

pytestmark = pytest.mark.slow

SDIST = "dist/de_core-0.1.0.tar.gz"
BUILD_SDIST = "from scikit_build_core.build import build_sdist; build_sdist('dist')"
#: For each way: a Python, what is installed before, and what pip installs in the checkout.
WAYS = {
    "folder": ("3.12", [], [".[server]", "./server"]),
    "editable": ("3.13", ["tensorflow-cpu==2.21.*"], ["-e", ".[server]", "-e", "./server"]),
    "sdist": ("3.10", ["tensorflow-cpu==2.20.*"], [f"{SDIST}[server]", "./server"]),
}


@pytest.mark.parametrize("way", WAYS)
def test_the_readme_runs_after_an_installation(tmp_path: Path, way: str):
    version, before, projects = WAYS[way]
    environment = FreshEnvironment(tmp_path, version)
    checkout = copy_of_checkout(tmp_path / "check out")
    if way == "sdist":
        run(sys.executable, "-c", BUILD_SDIST, cwd=checkout)
    if before:
        environment.install(*before)
    tensorflows = environment.tensorflows()
    environment.install(*projects, cwd=checkout)
    if before:
        assert environment.tensorflows() == tensorflows
    for folder in (environment.empty, checkout):
        environment.train(folder)
        environment.ask(folder, environment.bin / "de-core", "serve")
    environment.ask(checkout, environment.python, "-m", "server")
