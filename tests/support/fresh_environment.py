"""A new virtual environment that runs the README, as a newcomer does."""

import os
import re
import shutil
from pathlib import Path

import pytest

from tests.server.support.gateway_process import GatewayProcess
from tests.support import commands
from tests.support.page_process import blocks_of

ROOT = Path(__file__).resolve().parents[2]


#: An environment without a path to the checkout.
VARIABLES = {
    "PYTHONPATH": "",
    "TF_CPP_MIN_LOG_LEVEL": "2",
    "PIP_DISABLE_PIP_VERSION_CHECK": "1",
}


def run(*command: str | Path, cwd: Path, **more: str) -> str:
    """Runs a command, which must succeed, and returns its output; `more` are more variables."""
    done = commands.run(*command, cwd=cwd, timeout=3600, **VARIABLES, **more)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def python_of(version: str) -> Path:
    """Returns the path of an interpreter that can make environments; skips the test without one."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    found = [shutil.which(f"python{version}"), *pyenv.glob(f"{version}.*/bin/python")]
    for python in filter(None, found):
        done = commands.run(python, "-c", "import ensurepip, sys; print(sys.executable)")
        if done.returncode == 0:
            return Path(done.stdout.strip())
    pytest.skip(f"Python {version} is not installed")


def copy_of_checkout(folder: Path) -> Path:
    """Copies the checkout's sources, without anything that was built."""
    built = (".*", "build", "dist", "site", "__pycache__", "*.egg-info", "*.so", "_de_ops.json")
    return Path(shutil.copytree(ROOT, folder, ignore=shutil.ignore_patterns(*built)))


class FreshEnvironment:
    """A virtual environment beside an empty folder."""

    def __init__(self, folder: Path, version: str) -> None:
        self.bin = folder / "environment" / "bin"
        self.python = self.bin / "python"
        self.empty = folder / "empty"
        self.empty.mkdir()
        run(python_of(version), "-m", "venv", self.bin.parent, cwd=self.empty)

    def install(self, *what: str | Path, cwd: Path | None = None) -> None:
        run(self.python, "-m", "pip", "install", "--quiet", *what, cwd=cwd or self.empty)

    def tensorflows(self) -> list[str]:
        """Returns TensorFlow and what belongs to it, with versions."""
        installed = run(self.python, "-m", "pip", "freeze", cwd=self.empty)
        return re.findall(r"^tensorflow\S*==\S+", installed, re.MULTILINE)

    def train(self, cwd: Path) -> None:
        """Runs the README's Python blocks."""
        blocks = blocks_of((ROOT / "README.md").read_text("utf-8"))
        program = cwd / "train.py"
        program.write_text("\n".join(each.text for each in blocks if each.language == "python"))
        run(self.python, program, cwd=cwd)

    def ask(self, cwd: Path, *command: str | Path) -> None:
        """Runs a gateway that serves the README's model, and asks it."""
        model, log = Path("models/likes"), self.bin.parents[1] / "log"
        options = {"cwd": cwd, "env": {**os.environ, **VARIABLES}}
        with GatewayProcess(model, log, program=[*map(str, command)], **options) as gateway:
            gateway.wait_ready()
            reply = gateway.ask("POST", "/v1/models/likes:predict", {"instances": [7, 8]})
            assert reply.status == 200, reply
            (liked,), (disliked,) = reply.json()["predictions"]  # as the README says
            assert (liked > 0.9, disliked < 0.1) == (True, True), reply
            gateway.process.terminate()
            assert gateway.process.wait(60) == 0
