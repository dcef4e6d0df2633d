"""An application, models and a gateway process that the tests share."""

import fcntl
import functools
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fastapi import FastAPI

from tests.server.support.asgi import make_app
from tests.server.support.gateway_process import (
    INSTALLED,
    ROOT,
    GatewayProcess,
    environment,
    installed,
    run,
    stub_gateway,
)

HERE = Path(__file__).parent
#: Each process of an installed gateway runs this first. The package `server` is the checkout's.
WITHOUT_CHECKOUT = """
import os, sys
for name in ("server", *os.environ.get("DE_TEST_ABSENT", "").split()):
    sys.modules[name] = None  # cannot be imported
"""


@pytest.fixture(autouse=True)
def _no_settings_around(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in os.environ.keys() - environment().keys():
        monkeypatch.delenv(name)


@pytest.fixture
def app() -> FastAPI:
    """A gateway's application that serves the model `m` of numpy functions."""
    return make_app()


@pytest.fixture(scope="module")
def stub(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[GatewayProcess]:
    """A gateway with numpy functions, and with the flags that a module calls `FLAGS`."""
    with stub_gateway(tmp_path_factory.mktemp("stub"), *request.module.FLAGS) as process:
        yield process


def once(factory: pytest.TempPathFactory, name: str, write: Callable[[Path], object]) -> Path:
    """Returns a folder that one of the test processes writes; the others wait for it."""
    base = factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        base = base.parent
    folder, unfinished = base / name, base / f"{name}.unfinished"
    with (base / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            write(unfinished)
            unfinished.rename(folder)
    return folder


@pytest.fixture(scope="session")
def saved_models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with versions 1 and 2 of the test model. Copy from it and do not change it."""
    write = functools.partial(run, sys.executable, HERE / "make_models.py")
    return once(tmp_path_factory, "saved_models", write)


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which the gateway's wheel is installed, and an empty folder `empty`.

    With `PYTHONPATH` set to it, Python imports the gateway from there and never the checkout's.
    """
    return once(tmp_path_factory, "site", install)


def install(site: Path) -> None:
    """Builds the gateway's wheel from its sources alone, and installs it into a folder."""
    sources = site.with_name("gateway_sources")
    ignored = shutil.ignore_patterns("__pycache__", "*.egg-info", "build")
    shutil.copytree(ROOT / "server", sources, ignore=ignored)
    # If this fails, run: pip install 'setuptools>=77'
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index"]
    run(*pip, "--no-build-isolation", "--target", site, sources)
    (site / "sitecustomize.py").write_text(WITHOUT_CHECKOUT)
    (site / "empty").mkdir()


@pytest.fixture(scope="session")
def gateway(
    saved_models: Path, site: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[GatewayProcess]:
    """An installed gateway that serves version 1 of the test model as `ranker`. Do not stop it."""
    folder = tmp_path_factory.mktemp("served") / "ranker"
    shutil.copytree(saved_models / "1", folder / "1")
    log = folder.parent / "log"
    flags = ("--max-body-bytes", "1000000", "--ui", "--grpc-port", "0", "--labels", "stable=1")
    with GatewayProcess(folder, log, *flags, program=INSTALLED, **installed(site)) as process:
        process.grpc_port = process.port_of("gRPC")
        process.wait_ready()
        yield process
