"""Builds and runs the engine's C++ tests.

Without a preset it builds them in the folder where pip compiled the ops, if there is one, and
shares the engine's objects. A CMake preset has a folder of its own and needs no TensorFlow.
"""

from __future__ import annotations

import argparse
import os
import re
import resource
import shutil
import subprocess
import sys
from pathlib import Path

from build_ops import parallel_jobs

ROOT = Path(__file__).resolve().parent.parent
PRESETS = ("default", "engine-asan", "engine-fuzz", "engine-tsan", "engine-arm64")
#: pip's build folder of an editable installation (pyproject.toml).
SHARED = ROOT / "build" / "editable"
TIMEOUT_S = 1800
SHOWN = 5
#: This environment's tools come first.
PATH = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
RESULT = re.compile(r"^ *\d+/\d+ Test +#\d+: (\S+) .* ([\d.]+) sec", re.MULTILINE)


def run(command: list[str]) -> subprocess.CompletedProcess[str]:
    """Runs ``command`` in de_core."""
    return subprocess.run(
        command,
        cwd=ROOT / "de_core",
        env={**os.environ, "PATH": PATH},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )


def steps(preset: str | None, only: list[str]) -> list[list[str]]:
    """Returns the commands that configure, build and test; ``only`` names some of the tests."""
    jobs = str(parallel_jobs())
    if preset:
        where = ["--preset", preset]
        configure, build, test = where, where, where
    else:
        configure = ["-S", ".", "-B", str(SHARED), "-DDE_BUILD_TESTS=ON"]
        # An isolated `pip install -e .` built with a ninja that pip has removed.
        if ninja := shutil.which("ninja", path=PATH):
            configure.append(f"-DCMAKE_MAKE_PROGRAM={ninja}")
        build, test = [str(SHARED)], ["--test-dir", str(SHARED)]
        test += ["--output-on-failure", "--no-tests=error"]
    chosen = ["-R", f"^({'|'.join(only)})(_scalar|_avx2|_avx512)?$"] if only else []
    return [
        ["cmake", *configure],
        ["cmake", "--build", *build, "-j", jobs, "--target", *(only or ["de_tests"])],
        ["ctest", *test, "-j", jobs, *chosen],
    ]


def main() -> None:
    """Configures, builds and tests. Prints only failures and a summary."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--preset", choices=PRESETS)
    parser.add_argument("--only", nargs="+", metavar="TEST", help="build and run only these tests")
    parser.add_argument("--no-run", action="store_true", help="only build; benchmarks too")
    args = parser.parse_args()
    preset = args.preset or (None if (SHARED / "CMakeCache.txt").exists() else "default")
    for step in steps(preset, args.only or [])[: 2 if args.no_run else 3]:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        try:
            done = run(step)
        except FileNotFoundError:
            sys.exit("CMake is needed to build the engine's tests. Run: apt-get install cmake")
        except subprocess.TimeoutExpired:
            sys.exit(f"{' '.join(step)} took more than {TIMEOUT_S} s.")
        if done.returncode != 0:
            sys.exit(f"{done.stdout}\n{explain(step, done.stdout)}")
    if args.no_run:
        return
    passed = [line for line in done.stdout.splitlines() if "tests passed" in line]
    print(f"Engine tests ({preset or 'shared build'}): {next(iter(passed), 'no summary')}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    results = sorted(RESULT.findall(done.stdout), key=lambda each: -float(each[1]))
    longest = ", ".join(f"{name} {seconds} s" for name, seconds in results[:SHOWN])
    print(f"They took {spent:.0f} CPU seconds. The longest: {longest}")


def explain(step: list[str], output: str) -> str:
    """Returns the sentence for a failed command, from its output."""
    if "step for googletest failed" in output:
        return (
            "The engine's tests need GoogleTest, and its download failed. "
            "Run: apt-get install libgtest-dev"
        )
    return f"Failed: {' '.join(step)} (in de_core)"


if __name__ == "__main__":
    main()
