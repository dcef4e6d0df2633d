"""Models and a gateway process that the tests share, because each costs seconds to start."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.server.support.gateway_process import STUB, GatewayProcess, environment

HERE = Path(__file__).parent


@pytest.fixture(scope="session")
def saved_models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with versions 1 and 2 of the test model. Copy from it and do not change it."""
    base = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" not in os.environ:
        return write_models(base / "saved_models")
    # One test process writes it; the others wait and find it there.
    folder = base.parent / "saved_models"
    with (base.parent / "saved_models.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return folder if folder.exists() else write_models(folder)


def write_models(folder: Path) -> Path:
    unfinished = folder.with_suffix(".unfinished")
    done = subprocess.run(
        [sys.executable, str(HERE / "make_models.py"), str(unfinished)],
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return unfinished.rename(folder)


@pytest.fixture(scope="session")
def gateway(
    saved_models: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[GatewayProcess]:
    """A gateway that serves version 1 of the test model as `ranker`. Do not stop it."""
    folder = tmp_path_factory.mktemp("served") / "ranker"
    shutil.copytree(saved_models / "1", folder / "1")
    log = folder.parent / "log"
    with GatewayProcess(folder, log, "--max-body-bytes", "1000000", "--ui") as process:
        process.wait_ready()
        yield process


@pytest.fixture(scope="session")
def bystander(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    """A gateway that nobody attacks."""
    with GatewayProcess(None, tmp_path_factory.mktemp("quiet") / "log", module=STUB) as gateway:
        gateway.wait_ready()
        yield gateway
