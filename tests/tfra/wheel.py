"""Runs programs with the real `tfra` wheel, in an environment of its own.

`DE_TFRA_PYTHON` names the Python of an environment that has the wheel. Without it, the first slow
test builds one in `build/`. Only slow tests may use this module.
"""

import fcntl
import functools
import os
import shutil
import subprocess
import textwrap
from pathlib import Path

import pytest

from tests.support.fresh_environment import python_of

ROOT = Path(__file__).resolve().parents[2]
TFRA = "tensorflow-recommenders-addons"
#: By release: the newest Python that its wheel supports, and what pip installs with it.
RELEASES = {
    "0.8.1": ("3.11", ("tensorflow-cpu==2.16.2",)),
    "0.7.2": ("3.9", ("tensorflow-cpu==2.15.1",)),
    "0.6.0": ("3.9", ("tensorflow-cpu==2.8.3", "numpy<1.24", "protobuf<3.20")),
}
#: Installed without its dependencies, because it requires `tensorflow` beside `tensorflow-cpu`.
KERAS = "tf_keras==2.16.0"
_KEPT = ("HOME", "LANG", "PATH", "SSL_CERT_FILE", "TMPDIR")


@functools.cache
def wheel_python(release: str) -> Path:
    """Returns the Python of an environment with the wheel. Skips the test if there is none."""
    given = os.environ.get("DE_TFRA_PYTHON") if release == "0.8.1" else None
    if given:
        return _checked(Path(given), release)
    folder = ROOT / "build" / f"tfra-{release}-python{RELEASES[release][0]}"
    folder.parent.mkdir(exist_ok=True)
    with (folder.parent / f"{folder.name}.lock").open("w") as lock:  # tests may run in parallel
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "complete").exists():
            _build(folder, release)
    return folder / "bin" / "python"


def run_wheel(
    program: str | Path, *arguments: object, timeout: float = 600, release: str = "0.8.1"
) -> str:
    """Runs a program, a path or text, with the wheel and tf_keras, and returns its output."""
    python = wheel_python(release)
    start = [program] if isinstance(program, Path) else ["-c", textwrap.dedent(program)]
    # The settings of this process, such as a coverage tool's, are meant for its own Python.
    environment = {name: value for name, value in os.environ.items() if name in _KEPT}
    environment |= {"TF_CPP_MIN_LOG_LEVEL": "3"}
    if release == "0.8.1":  # the others are older than Keras 3
        environment |= {"TF_USE_LEGACY_KERAS": "1"}
    done = _run([python, *start, *arguments], timeout, environment)
    assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    return done.stdout


def _build(folder: Path, release: str) -> None:
    """Builds the environment. Skips the test if Python or the packages are missing."""
    version, packages = RELEASES[release]
    shutil.rmtree(folder, ignore_errors=True)
    _require(_run([python_of(version), "-m", "venv", folder], 300))
    pip = [folder / "bin" / "python", "-m", "pip", "install", "--quiet", "--no-cache-dir"]
    _require(_run([*pip, f"{TFRA}=={release}", *packages], 1800))
    if release == "0.8.1":
        _require(_run([*pip, "--no-deps", KERAS], 1800))
    _checked(folder / "bin" / "python", release)
    (folder / "complete").touch()


def _checked(python: Path, release: str) -> Path:
    """Checks that an environment has the right wheel: other versions write other files."""
    find = f"import importlib.metadata as m; print(m.version('{TFRA}'))"
    found = _run([python, "-c", find], 60)
    assert found.stdout.split() == [release], f"{python}: {found}"
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
