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
#: Free disk space in GiB: for TensorFlow, its dependencies and the build; and for a rebuild only.
FRESH_GIB, FILLED_GIB = 4.0, 0.5
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


def python_problem(version: "tuple[int, ...]", found: "dict[str, str]") -> "str | None":
    """Returns the problem with the Python ``version``; ``found`` maps commands to other Pythons."""
    if OLDEST <= tuple(version[:2]) <= NEWEST:
        return None
    name = "{}.{}".format(*version[:2])
    if found:
        remedy = f"Add another one to the make command: PYTHON={next(iter(found))}"
    else:
        remedy = "Install one, for example: apt-get install python3.11 python3.11-venv"
    return f"Python 3.10 to 3.13 is needed. Received: python={name}. {remedy}"


def supported_pythons() -> "dict[str, str]":
    """Returns the supported interpreters on PATH, path by command, newest first.

    Runs each command once, because version managers put commands on PATH even for a Python that is
    not installed.
    """
    found = {}
    for minor in range(NEWEST[1], OLDEST[1] - 1, -1):
        path = shutil.which(f"python3.{minor}")
        if path and _runs([path, "-c", "import venv, ensurepip"]):
            found[f"python3.{minor}"] = path
    return found


def venv_problem(has_ensurepip: bool) -> "str | None":
    """Returns the problem if this Python cannot create a virtual environment."""
    if has_ensurepip:
        return None
    package = "python{}.{}-venv".format(*sys.version_info[:2])
    return f"Python's venv and ensurepip modules are needed. Run: apt-get install {package}"


def compiler_problem(compiler: "str | None", works: bool) -> "str | None":
    """Returns the problem with ``compiler``, the one that CMake would use."""
    if compiler and works:
        return None
    if compiler:
        received = f"{compiler}, which cannot compile a small C++17 program"
    else:
        received = "no " + ", ".join(COMPILERS) + " on PATH"
    return (
        f"A C++17 compiler is needed to compile the ops. Received: {received}. "
        "Run: apt-get install g++ (or set CXX to another one)"
    )


def compiler_works(compiler: str) -> bool:
    """Returns whether ``compiler`` compiles and links a small C++17 program with threads."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "probe.cc")
        source.write_text(PROGRAM, encoding="utf-8")
        command = [*compiler.split(), "-std=c++17", "-pthread", str(source)]
        return _runs([*command, "-o", str(Path(folder, "probe"))])


def disk_problem(folder: str, free_gib: float, needed_gib: float) -> "str | None":
    """Returns the problem if the disk of ``folder`` has less than ``needed_gib`` free."""
    if free_gib >= needed_gib:
        return None
    return (
        f"{needed_gib:.1f} GB of free disk are needed in {folder}. Received: {free_gib:.1f} GB. "
        "Free some space there, or move the checkout (temporary files: set TMPDIR) to a larger disk"
    )


def platform_problem(platform: str) -> "str | None":
    """Returns the problem with an operating system other than Linux."""
    if platform == "linux":
        return None
    return (
        f"The ops are built and tested on Linux only. Received: platform={platform}. "
        "Use a Linux machine, WSL 2 or the Dockerfile"
    )


def tools_problem(missing: "list[tuple[tuple[str, ...], str]]") -> "str | None":
    """Returns the problem with the ``missing`` entries of TEST_TOOLS."""
    if not missing:
        return None
    programs = ", ".join(names[0] for names, _ in missing)
    packages = " ".join(package for _, package in missing)
    return (
        f"The tests start programs of other packages. Received: no {programs} on PATH. "
        f"Run: apt-get install {packages}"
    )


def together(problems: "list[str]") -> "list[str]":
    """Adds the one command that installs the packages of several problems."""
    packages = [re.findall(r"apt-get install ((?: ?[\w.+-]+)+)", each) for each in problems]
    commands = [each[0] for each in packages if each]
    if len(commands) < 2:
        return problems
    return [*problems, f"All together: apt-get install {' '.join(commands)}"]


def diagnose(root: Path, environment_exists: bool, tests: bool = False) -> "list[str]":
    """Returns every problem of this machine, each as one sentence; empty if there is none.

    With ``tests``, the programs that tests start belong to the machine.
    """
    needed = FILLED_GIB if environment_exists else FRESH_GIB
    supported = OLDEST <= sys.version_info[:2] <= NEWEST
    wanted = [os.environ["CXX"]] if os.environ.get("CXX") else list(COMPILERS)
    compiler = next((name for name in wanted if shutil.which(name.split()[0])), None)
    problems = [
        platform_problem(sys.platform),
        python_problem(sys.version_info[:2], {} if supported else supported_pythons()),
        venv_problem(importlib.util.find_spec("ensurepip") is not None) if supported else None,
        compiler_problem(compiler, compiler is not None and compiler_works(compiler)),
        tools_problem([each for each in TEST_TOOLS if not any(map(shutil.which, each[0]))])
        if tests
        else None,
        disk_problem(str(root), shutil.disk_usage(str(root)).free / GIB, needed),
    ]
    temporary = tempfile.gettempdir()
    if not environment_exists:
        problems.append(disk_problem(temporary, shutil.disk_usage(temporary).free / GIB, 1.5))
    return together([problem for problem in problems if problem])


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
