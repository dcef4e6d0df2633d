"""Runs programs with the real `tfra` wheel, in an environment of its own.

`DE_TFRA_PYTHON` names the Python of an environment that has the wheel. Without it, the first slow
test builds one in `build/`. Only slow tests may use this module.
"""

from __future__ import annotations

import fcntl
import functools
import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TFRA = "tensorflow-recommenders-addons==0.8.1"
PACKAGES = (TFRA, "tensorflow-cpu==2.16.2")
#: Installed without its dependencies, because it requires `tensorflow` beside `tensorflow-cpu`.
KERAS = "tf_keras==2.16.0"
PYTHON = "3.11"  # the newest Python that the wheel supports
_KEPT = ("HOME", "LANG", "PATH", "SSL_CERT_FILE", "TMPDIR")


@functools.cache
def ancestor_python() -> Path:
    """Returns the Python of an environment with the wheel. Skips the test if there is none."""
    given = os.environ.get("DE_TFRA_PYTHON")
    if given:
        return _checked(Path(given))
    folder = ROOT / "build" / f"tfra-0.8.1-python{PYTHON}"
    folder.parent.mkdir(exist_ok=True)
    with (folder.parent / f"{folder.name}.lock").open("w") as lock:  # tests may run in parallel
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "complete").exists():
            _build(folder)
    return folder / "bin" / "python"


def run_ancestor(program: str | Path, *arguments: object, timeout: float = 600) -> str:
    """Runs a program with the wheel and tf_keras, and returns its output.

    Args:
        program: The path of a program, or the program's text.
        arguments: The program's arguments.
        timeout: Seconds.
    """
    python = ancestor_python()
    start = [program] if isinstance(program, Path) else ["-c", textwrap.dedent(program)]
    # The settings of this process, such as a coverage tool's, are meant for its own Python.
    environment = {name: value for name, value in os.environ.items() if name in _KEPT}
    environment |= {"TF_USE_LEGACY_KERAS": "1", "TF_CPP_MIN_LOG_LEVEL": "3"}
    done = _run([python, *start, *arguments], timeout, environment)
    assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    return done.stdout


def _build(folder: Path) -> None:
    """Builds the environment. Skips the test if Python or the packages are missing."""
    interpreter = _interpreter()
    if interpreter is None:
        pytest.skip(f"the real wheel needs Python {PYTHON}: install it, or set DE_TFRA_PYTHON")
    shutil.rmtree(folder, ignore_errors=True)
    _require(_run([interpreter, "-m", "venv", folder], 300))
    pip = [folder / "bin" / "python", "-m", "pip", "install", "--quiet", "--no-cache-dir"]
    for wanted in (PACKAGES, ("--no-deps", KERAS)):
        _require(_run([*pip, *wanted], 1800))
    _checked(folder / "bin" / "python")
    (folder / "complete").touch()


def _interpreter() -> str | None:
    """Returns a Python of the right version that can make an environment."""
    here = sys.executable if sys.version_info[:2] == (3, 11) else None
    for each in (here, shutil.which(f"python{PYTHON}"), f"/usr/bin/python{PYTHON}"):
        if each and Path(each).exists():
            answers = _run([each, "-c", "import venv, ensurepip, sys; print(sys.version)"], 60)
            if answers.stdout.startswith(PYTHON):
                return each
    return None


def _checked(python: Path) -> Path:
    """Checks that an environment has the right wheel: other versions write other files."""
    names = ("tensorflow_recommenders_addons", "tf_keras")
    find = f"import importlib.metadata as m; print(*map(m.version, {names}))"
    found = _run([python, "-c", find], 60)
    assert found.stdout.split() == ["0.8.1", "2.16.0"], f"{python}: {found}"
    return python


def _require(done: subprocess.CompletedProcess[str]) -> None:
    if done.returncode != 0:
        pytest.skip(f"the environment of {TFRA} could not be built: {done.stderr[-500:]}")


def _run(
    command: list[object], timeout: float, environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(each) for each in command],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
