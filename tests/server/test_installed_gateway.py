"""The gateway's wheel holds the right files, and works without the checkout."""

from __future__ import annotations

import http.client
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

try:
    import tomllib
except ModuleNotFoundError:  # Python 3.10 has no tomllib; pytest installs tomli there
    import tomli as tomllib

import pytest

from tests.server.support.gateway_process import ROOT
from tests.support.fresh_environment import running_gateway

#: Each process of these tests runs this first: it makes imports of the checkout or TensorFlow fail.
WITHOUT_TENSORFLOW = """
import sys
from importlib.abc import MetaPathFinder
class Refusing(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("tensorflow", "de_core", "server"):
            raise ImportError(f"{name} is not installed")
sys.meta_path.insert(0, Refusing())
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the installed wheel."""
    pytest.importorskip("setuptools", minversion="77")
    folder = tmp_path_factory.mktemp("gateway")
    ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
    shutil.copytree(ROOT / "server", folder / "server", ignore=ignored)
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*pip, "-w", str(folder), str(folder / "server")], check=True, timeout=300)
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "site")
    return folder / "site"


def test_the_list_of_packages_names_every_folder():
    project = tomllib.loads((ROOT / "server/pyproject.toml").read_text("utf-8"))
    folders = {p.parent.relative_to(ROOT / "server") for p in (ROOT / "server").rglob("*.py")}
    packages = {".".join(("de_core_gateway", *folder.parts)) for folder in folders}
    assert set(project["tool"]["setuptools"]["packages"]) == packages


def test_the_wheel_holds_every_file_under_its_own_name(site: Path):
    sources = {
        path.relative_to(ROOT / "server")
        for pattern in ("*.py", "*.html", "*.binpb", "*.proto", "py.typed")
        for path in (ROOT / "server").rglob(pattern)
    }
    package = site / "de_core_gateway"
    assert {p.relative_to(package) for p in package.rglob("*") if p.is_file()} == sources
    assert sorted(p.name for p in site.iterdir()) == [
        "de_core_gateway",
        "de_core_gateway-0.1.0.dist-info",
    ]
    (described,) = site.glob("*.dist-info")
    assert "\nProvides-Extra: tensorflow\n" in (described / "METADATA").read_text()
    assert "de-core-gateway = de_core_gateway." in (described / "entry_points.txt").read_text()
    assert "Apache License" in (described / "licenses/LICENSE").read_text()


def test_the_wheel_answers_from_an_empty_folder_without_tensorflow(site: Path, tmp_path: Path):
    (tmp_path / "sitecustomize.py").write_text(WITHOUT_TENSORFLOW)
    empty = tmp_path / "empty"
    empty.mkdir()
    kept = {k: v for k, v in os.environ.items() if not k.startswith("DE_GATEWAY_")}
    flags = "--engine tfserving --upstreams 127.0.0.1:1 --models m --port 0 --workers 2"
    environment = {**kept, "PYTHONPATH": os.pathsep.join([str(site), str(tmp_path)])}
    command = [sys.executable, "-m", "de_core_gateway", *flags.split()]
    with running_gateway(command, empty, environment) as port:
        connection = http.client.HTTPConnection("127.0.0.1", port)
        connection.request("GET", "/v1/models/m/versions/1")
        reply = connection.getresponse()
        assert reply.status == 503, reply.read()
        assert b"No model server" in reply.read()
        connection.close()


def test_messages_name_the_installed_command(site: Path, tmp_path: Path):
    done = subprocess.run(
        [sys.executable, "-m", "de_core_gateway.keys", "--help"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(site)},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert "python -m de_core_gateway.keys" in done.stdout
