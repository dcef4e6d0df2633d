"""An environment with the clients' packages, and a gateway for them."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.server.support.gateway_process import GatewayProcess

REQUIREMENTS = Path(__file__).with_name("requirements.txt")


@pytest.fixture(scope="session")
def clients_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment with the packages of `requirements.txt`."""
    folder = tmp_path_factory.mktemp("clients") / "environment"
    python = folder / "bin" / "python"
    uv = shutil.which("uv")
    if uv:
        run(uv, "venv", "--quiet", "--python", sys.executable, str(folder))
        run(uv, "pip", "install", "--quiet", "--python", str(python), "-r", str(REQUIREMENTS))
    else:
        run(sys.executable, "-m", "venv", str(folder))
        run(str(python), "-m", "pip", "install", "--quiet", "-r", str(REQUIREMENTS))
    return python


def run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, f"{command}:\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return done.stdout


class Asked:
    """A gateway with both ports, which serves version 1 of the test model as `ranker`."""

    def __init__(self, gateway: GatewayProcess) -> None:
        self.http = gateway.port
        self.grpc = gateway.port_of("gRPC")


@pytest.fixture(scope="module")
def asked(saved_models: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Asked]:
    folder = tmp_path_factory.mktemp("asked") / "ranker"
    shutil.copytree(saved_models / "1", folder / "1")
    log = folder.parent / "log"
    with GatewayProcess(folder, log, "--grpc-port", "0") as gateway:
        ports = Asked(gateway)
        gateway.wait_ready()
        yield ports
        assert "Traceback" not in gateway.log()
