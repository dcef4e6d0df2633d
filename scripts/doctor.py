"""Lists what this machine lacks to compile and run the project, one sentence per problem.

Runs before anything is installed, with any ``python3``. So it uses only the standard library and
the syntax of Python 3.6, and quotes annotations that Python 3.6 could not evaluate.
"""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

OLDEST, NEWEST = (3, 10), (3, 13)
GIB = 2**30
#: Free disk space in GiB that a new environment needs: for TensorFlow, its dependencies and the
#: build; and for temporary files.
PROJECT_GIB, TEMPORARY_GIB = 4.0, 1.5
COMPILERS = ("c++", "g++", "clang++")
#: The programs that tests start, any one of each group, and the Debian package with them.
TEST_TOOLS = (
    (("redis-server",), "redis-server"),
    (("redis-cli",), "redis-tools"),
    (("chromium", "chromium-browser"), "chromium"),
    (("promtool",), "prometheus"),
)
PROGRAM = """
#include <optional>
#include <string_view>
#include <thread>
int main() { std::optional<std::string_view> s = "17"; std::thread([] {}).join(); return !s; }
"""


def diagnose(root: Path, environment_exists: bool, tests: bool = False) -> "list[str]":
    """Returns every problem of this machine, each as one sentence; empty if there is none.

    With ``tests``, the programs that tests start belong to the machine. The last sentence is the
    one command that installs the packages of several problems.
    """
    problems = []
    if sys.platform != "linux":
        problems.append(
            f"The ops are built and tested on Linux only. Received: platform={sys.platform}. "
            "Use a Linux machine, WSL 2 or the Dockerfile"
        )
    name = "{}.{}".format(*sys.version_info[:2])
    if not OLDEST <= sys.version_info[:2] <= NEWEST:
        found = supported_python()
        remedy = (
            f"Add another one to the make command: PYTHON={found}"
            if found
            else "Install one, for example: apt-get install python3.11 python3.11-venv"
        )
        problems.append(f"Python 3.10 to 3.13 is needed. Received: python={name}. {remedy}")
    elif importlib.util.find_spec("ensurepip") is None:
        problems.append(
            "Python's venv and ensurepip modules are needed. "
            f"Run: apt-get install python{name}-venv"
        )
    wanted = [os.environ["CXX"]] if os.environ.get("CXX") else list(COMPILERS)
    compiler = next((each for each in wanted if shutil.which(each.split()[0])), None)
    if compiler is None or not compiler_works(compiler):
        received = f"no {', '.join(COMPILERS)} on PATH"
        if compiler is not None:
            received = f"{compiler}, which cannot compile a small C++17 program"
        problems.append(
            f"A C++17 compiler is needed to compile the ops. Received: {received}. "
            "Run: apt-get install g++ (or set CXX to another one)"
        )
    missing = [each for each in TEST_TOOLS if tests and not any(map(shutil.which, each[0]))]
    if missing:
        problems.append(
            "The tests start programs of other packages. Received: no "
            f"{', '.join(names[0] for names, _ in missing)} on PATH. "
            f"Run: apt-get install {' '.join(package for _, package in missing)}"
        )
    needs = [(str(root), PROJECT_GIB), (tempfile.gettempdir(), TEMPORARY_GIB)]
    for folder, needed in [] if environment_exists else needs:
        free = shutil.disk_usage(folder).free / GIB
        if free < needed:
            problems.append(
                f"{needed:.1f} GB of free disk are needed in {folder}. Received: {free:.1f} GB. "
                "Free some space there, or move the checkout (temporary files: set TMPDIR) to a "
                "larger disk"
            )
    packages = [re.findall(r"apt-get install ((?: ?[\w.+-]+)+)", each) for each in problems]
    commands = [each[0] for each in packages if each]
    if len(commands) > 1:
        problems.append(f"All together: apt-get install {' '.join(commands)}")
    return problems


def supported_python() -> "str | None":
    """Returns the command of the newest supported Python on PATH.

    Runs each command once, because version managers put commands on PATH even for a Python that is
    not installed.
    """
    for minor in range(NEWEST[1], OLDEST[1] - 1, -1):
        command = f"python3.{minor}"
        if shutil.which(command) and _runs([command, "-c", "import venv, ensurepip"]):
            return command
    return None


def compiler_works(compiler: str) -> bool:
    """Returns whether ``compiler`` compiles and links a small C++17 program with threads."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "probe.cc")
        source.write_text(PROGRAM, encoding="utf-8")
        command = [*compiler.split(), "-std=c++17", "-pthread", str(source)]
        return _runs([*command, "-o", str(Path(folder, "probe"))])


def _runs(command: "list[str]") -> bool:
    try:
        done = subprocess.run(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=120, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


if __name__ == "__main__":
    sentences = diagnose(Path(__file__).resolve().parent.parent, environment_exists=False)
    sys.exit("\n".join(sentences) if sentences else None)
