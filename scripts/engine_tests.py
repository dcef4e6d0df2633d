"""Builds and runs the engine's C++ tests, without TensorFlow, with one of the CMake presets.

Without GoogleTest it skips them and says how to install it. With ``--require``, as in continuous
integration, that is an error.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

from build_ops import parallel_jobs

ROOT = Path(__file__).resolve().parent.parent
PRESETS = ("default", "engine-asan", "engine-tsan", "engine-arm64")
TIMEOUT_S = 1800
NO_GTEST = "need GoogleTest"


def run(command: list[str]) -> subprocess.CompletedProcess[str]:
    """Runs ``command`` in de_core, with this environment's tools on PATH."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    return subprocess.run(
        command,
        cwd=ROOT / "de_core",
        env={**os.environ, "PATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )


def main() -> None:
    """Configures, builds and tests. Prints only failures and a summary."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--preset", choices=PRESETS, default="default")
    parser.add_argument("--require", action="store_true", help="fail if GoogleTest is missing")
    parser.add_argument("--only", nargs="+", metavar="TEST", help="build and run only these tests")
    args = parser.parse_args()
    jobs = str(parallel_jobs())
    targets = ["--target", *args.only] if args.only else []
    chosen = ["-R", f"^({'|'.join(args.only)})$"] if args.only else []
    steps = (
        ["cmake", "--preset", args.preset],
        ["cmake", "--build", "--preset", args.preset, "-j", jobs, *targets],
        ["ctest", "--preset", args.preset, "-j", jobs, *chosen],
    )
    for step in steps:
        try:
            done = run(step)
        except FileNotFoundError:
            sys.exit("CMake is needed to build the engine's tests. Run: apt-get install cmake")
        except subprocess.TimeoutExpired:
            sys.exit(f"{' '.join(step)} took more than {TIMEOUT_S} s.")
        if done.returncode == 0:
            continue
        if NO_GTEST in done.stdout and not args.require:
            print("Engine tests skipped: they need GoogleTest. Run: apt-get install libgtest-dev")
            return
        sys.exit(f"{done.stdout}\nFailed: {' '.join(step)} (in de_core)")
    print(f"Engine tests ({args.preset}): {_summary(done.stdout)}")


def _summary(output: str) -> str:
    return next((line for line in output.splitlines() if "tests passed" in line), "no summary")


if __name__ == "__main__":
    main()
