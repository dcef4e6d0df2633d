"""Creates the virtual environment of ``make demo`` and ``make test``, and keeps it current.

It checks this machine (doctor.py), installs TensorFlow and the build tools, then the project in
editable mode: the installed package and the checkout are the same files. With the extra ``server``
it installs the gateway in the same way. Later runs reinstall only if a pyproject.toml changed, and
recompile only if a C++ source changed.

An unsupported ``python3`` must still run doctor.py's check. So this file uses the syntax of Python
3.6 and quotes annotations that Python 3.6 could not evaluate.
"""

import argparse
import hashlib
import json
import os
import re
import runpy
import subprocess
import sys
import time
from pathlib import Path

import doctor

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ("de_core/CMakeLists.txt", "de_core/cmake/*", "de_core/_build/*.py", "de_core/cc/**/*")
PROJECTS = ("pyproject.toml", "server/pyproject.toml")
BUILD_TOOLS = ("scikit-build-core>=1.1", "setuptools>=77", "cmake>=3.25", "ninja>=1.11")
USABLE = "import sys, pip; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 13))"
#: Patterns in pip's log, and the sentence for each.
FAILURES = (
    ("No space left on device", "The disk became full: free some space and run the command again."),
    (
        "ops did not compile",
        "The ops did not compile: the first errors are above, the rest is in {log}.",
    ),
    (
        "No matching distribution found",
        "pip found no fitting package: is this Linux on x86-64 or ARM64, and is the package index "
        "reachable? Its messages are in {log}.",
    ),
    (
        "Connection",
        "pip could not reach the package index: check the network and proxy settings, then run the "
        "command again. Its messages are in {log}.",
    ),
)


def digest(paths: "list[Path]") -> str:
    """Returns a fingerprint of the files' names and contents."""
    total = hashlib.sha256()
    for path in sorted(paths):
        total.update(f"{path.relative_to(ROOT)}\0".encode())
        total.update(path.read_bytes())
    return total.hexdigest()


def source_files() -> "list[Path]":
    """Returns the source files of the op library."""
    return [path for pattern in SOURCES for path in ROOT.glob(pattern) if path.is_file()]


def errors(log: str, most: int = 12) -> "list[str]":
    """Returns the first lines of pip's log that describe an error, without time stamps."""
    lines = (re.sub(r"^\d{4}-\S+ ", "", line).strip() for line in log.splitlines())
    return [
        line for line in lines if re.search(r"[Ee]rror:|CMake Error|ERROR:|^FAILED:|^Error ", line)
    ][:most]


def explain(log: str, log_path: Path) -> str:
    """Returns the sentence for a failed installation, from pip's log."""
    for sign, sentence in FAILURES:
        if sign in log:
            return sentence.format(log=log_path)
    return f"The installation failed: its first errors are above, the rest is in {log_path}."


class Environment:
    """The virtual environment, and its stamp file that records what was installed."""

    def __init__(self, folder: Path) -> None:
        """Names an environment, which may not exist yet."""
        self.folder = folder
        self.python = folder / "bin" / "python"
        self._log = folder / "install.log"
        self._stamp = folder / "de_core.json"

    def exists(self) -> bool:
        """Returns whether the environment exists and its installation was completed."""
        return self.python.exists() and self._stamp.exists()

    def ensure(self, extras: "set[str]") -> None:
        """Creates the environment, or updates it to the checkout."""
        if not self.python.exists():
            _say(f"Creating the virtual environment {self.folder}")
            command = [sys.executable, "-m", "venv", str(self.folder)]
            if subprocess.call(command) != 0:
                sys.exit(f"This command failed, its messages are above: {' '.join(command)}")
        elif subprocess.call([str(self.python), "-c", USABLE]) != 0:
            sys.exit(f"{self.folder} holds no Python 3.10 to 3.13 with pip. Run: make clean")
        try:
            done = dict(json.loads(self._stamp.read_text("utf-8")))
        except (OSError, ValueError):
            done = {}
        extras |= set(done.get("extras", ()))
        wanted = {
            "project": digest([ROOT / name for name in PROJECTS]),
            "sources": digest(source_files()),
            "extras": sorted(extras),
        }
        if done == wanted:
            return
        projects = ["-e", f"{ROOT}[{','.join(sorted(extras))}]"]
        if "server" in extras:  # the requirement de-core-gateway
            projects += ["-e", str(ROOT / "server")]
        if done.get("project") != wanted["project"] or done.get("extras") != wanted["extras"]:
            tensorflow = runpy.run_path(str(ROOT / "de_core" / "_build" / "tf_pin.py"))
            pin = tensorflow["requirement"](None, os.environ)
            _say(f"Installing {pin} and the build tools (downloads 700 MB the first time)")
            # Install TensorFlow before the project, because the ops compile against it.
            # `--no-compile`: Python compiles a module of TensorFlow when it is imported, not all 10
            # 000 modules now.
            self._pip("--no-compile", pin, *BUILD_TOOLS)
            _say("Compiling the ops and installing the project (a minute or two)")
            self._pip("--quiet", "--no-build-isolation", *projects)
        else:
            _say("Compiling the ops again: their sources have changed")
            self._pip("--quiet", "--no-build-isolation", "--no-deps", "-e", str(ROOT))
        self._stamp.write_text(json.dumps(wanted), encoding="utf-8")

    def _pip(self, *arguments: str) -> None:
        self._log.unlink(missing_ok=True)
        command = [str(self.python), "-m", "pip", "install", "--log", str(self._log), *arguments]
        path = os.pathsep.join([str(self.python.parent), os.environ.get("PATH", os.defpath)])
        variables = {**os.environ, "PATH": path, "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
        start = time.monotonic()
        if subprocess.call(command, env=variables) != 0:
            log = self._log.read_text("utf-8", "replace") if self._log.exists() else ""
            print(*errors(log), sep="\n")
            sys.exit(explain(log, self._log))
        _say(f"  done in {time.monotonic() - start:.0f} s")


def _say(text: str) -> None:
    print(text, flush=True)


def main() -> None:
    """Checks the machine and creates the environment."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--venv", type=Path, default=ROOT / ".venv")
    parser.add_argument("--extras", default="server", help="comma-separated extras to install")
    parser.add_argument("--tests", action="store_true", help="check the tests' programs too")
    args = parser.parse_args()
    environment = Environment(args.venv.absolute())
    problems = doctor.diagnose(ROOT, environment.exists(), args.tests)
    if problems:
        sys.exit("\n".join(problems))
    environment.ensure(set(args.extras.split(",")))


if __name__ == "__main__":
    main()
