"""The wheels in fresh environments, from an empty folder: train, export, serve, ask."""

from __future__ import annotations

import http.client
import json
import os
import re
import shutil
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

#: Each TensorFlow, and a Python that it supports. Together they cover all Pythons.
MATRIX = (("2.19", "3.10"), ("2.20", "3.12"), ("2.21", "3.11"), ("2.21", "3.13"))
MINORS = ("2.19", "2.20", "2.21")
ASK = "/v1/models/likes:predict"


def run(*command: str | Path, cwd: Path) -> str:
    variables = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env={**variables, "TF_CPP_MIN_LOG_LEVEL": "2"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=3600,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def python_of(version: str) -> str:
    """Returns the path of an interpreter; skips the test if none is installed."""
    pyenv = shutil.which("pyenv")
    listed = subprocess.check_output([pyenv, "versions", "--bare"], text=True) if pyenv else ""
    done = subprocess.run(
        ["uv", "python", "find", "--no-python-downloads", "--system", version],
        env={**os.environ, "PYENV_VERSION": ":".join(listed.split())},  # all that pyenv installed
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        pytest.skip(f"Python {version} is not installed")
    return done.stdout.strip()


def tensorflows(python: Path, cwd: Path) -> list[str]:
    """Returns TensorFlow and what belongs to it, with versions."""
    installed = run("uv", "pip", "freeze", "--python", python, cwd=cwd)
    return re.findall(r"^tensorflow\S*==\S+", installed, re.MULTILINE)


@pytest.fixture(scope="module")
def wheels(root: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The library's wheel, as scripts/build_wheels.py makes it, and the gateway's."""
    for module in ("auditwheel", "scikit_build_core"):
        pytest.importorskip(module, reason="needs de-core[dev]")
    folder = tmp_path_factory.mktemp("wheels")
    run(sys.executable, root / "scripts/build_wheels.py", "--out", folder, cwd=root)
    source = folder / "server"
    shutil.copytree(root / "server", source, ignore=shutil.ignore_patterns("*.egg-info"))
    pip = (sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation")
    run(*pip, "--wheel-dir", folder, source, cwd=folder)
    return sorted(folder.glob("*.whl"))


def test_one_wheel_holds_a_library_for_each_tensorflow(wheels: list[Path]):
    library = wheels[0]
    assert library.name == "de_core-0.1.0-py3-none-manylinux_2_27_x86_64.whl"
    assert library.stat().st_size < 15_000_000
    with zipfile.ZipFile(library) as archive:
        names = archive.namelist()
        metadata = archive.read("de_core-0.1.0.dist-info/METADATA").decode()
    assert [n for n in names if n.endswith(".so")] == [
        f"de_core/_ops/{minor}/_de_ops.so" for minor in MINORS
    ]
    required = re.findall(r"^Requires-Dist: (.*)$", metadata, re.MULTILINE)
    assert [each for each in required if "extra" not in each] == ["numpy>=1.26", "rich>=13"]
    assert "Requires-Python: <3.14,>=3.10" in metadata


@pytest.mark.skipif(shutil.which("uv") is None, reason="uv is not installed")
@pytest.mark.parametrize(("minor", "version"), MATRIX)
def test_the_readme_runs_with_the_wheels_in_an_empty_folder(
    root: Path, wheels: list[Path], tmp_path: Path, minor: str, version: str
):
    interpreter = python_of(version)
    environment, empty = tmp_path / "environment", tmp_path / "empty"
    empty.mkdir()
    python = environment / "bin/python"
    run("uv", "venv", "--quiet", "--python", interpreter, environment, cwd=empty)
    install = ("uv", "pip", "install", "--quiet", "--python", python)
    run(*install, f"tensorflow-cpu=={minor}.*", cwd=empty)
    before = tensorflows(python, empty)
    run(*install, f"{wheels[0]}[server]", wheels[1], cwd=empty)
    assert tensorflows(python, empty) == before
    assert not any(each.startswith("tensorflow==") for each in before)
    blocks = re.findall(r"^```python\n(.*?)^```$", (root / "README.md").read_text(), re.M | re.S)
    (empty / "train.py").write_text("\n".join(blocks))
    run(python, "train.py", cwd=empty)
    with subprocess.Popen(
        [environment / "bin/de-core-gateway", "--model-dir", "models/likes", "--port", "0"],
        cwd=empty,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as gateway:
        try:
            assert gateway.stdout is not None
            assert gateway.stderr is not None
            line = gateway.stdout.readline()
            assert "Gateway listens on http" in line, gateway.stderr.read()
            connection = http.client.HTTPConnection("127.0.0.1", int(line.rsplit(":", 1)[1]))
            deadline, status = time.monotonic() + 120, 503
            while status == 503 and time.monotonic() < deadline:  # the model is being loaded
                time.sleep(0.1)
                connection.request("POST", ASK, json.dumps({"instances": [7, 8]}))
                reply = connection.getresponse()
                answer, status = json.loads(reply.read()), reply.status
            assert status == 200, answer
            assert len(answer["predictions"]) == 2
            connection.close()
        finally:
            gateway.terminate()
        assert gateway.wait(60) == 0
