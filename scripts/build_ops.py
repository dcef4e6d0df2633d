"""Compiles the op library into the checkout, for the running interpreter's TensorFlow.

A quick incremental rebuild for developers (``make ops``). Users get the library from ``pip
install``.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import pathlib
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
GIB_PER_COMPILER = 1.5


def parallel_jobs() -> int:
    """Returns the number of parallel compilers: one per core, as far as memory allows."""
    cores = len(os.sched_getaffinity(0))
    gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES") / 2**30
    return max(1, min(cores, int(gib / GIB_PER_COMPILER)))


def main() -> int:
    """Configures and builds. A lock allows one build at a time per build folder."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build-dir", type=pathlib.Path, default=ROOT / "build" / "ops")
    parser.add_argument("--jobs", type=int, default=parallel_jobs())
    parser.add_argument(
        "--check", action="store_true", help="only check that each source compiles by itself"
    )
    args = parser.parse_args()
    beside_python = str(pathlib.Path(sys.executable).parent)
    cmake = shutil.which("cmake") or shutil.which("cmake", path=beside_python)
    if cmake is None:
        sys.exit("CMake is needed to compile the ops: pip install cmake ninja")
    args.build_dir.mkdir(parents=True, exist_ok=True)
    configure = [cmake, "-S", str(ROOT / "de_core"), "-B", str(args.build_dir), "-DDE_INPLACE=ON"]
    configure += [f"-DTensorFlow_PYTHON={sys.executable}", "-DCMAKE_BUILD_TYPE=Release"]
    if shutil.which("ninja"):
        configure += ["-G", "Ninja"]
    build = [cmake, "--build", str(args.build_dir), "-j", str(args.jobs)]
    if args.check:
        build += ["--target", "de_each_source"]
    with (args.build_dir / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return subprocess.call(configure) or subprocess.call(build)


if __name__ == "__main__":
    sys.exit(main())
