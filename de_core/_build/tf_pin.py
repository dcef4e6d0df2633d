"""Finds the TensorFlow of an environment, and writes its minor version into the wheel's requirements.

Three callers, all at build time: scikit-build-core (as a dynamic-metadata provider), CMake
(``tf_pin.py --locate``) and the Makefile. Standard library only, and TensorFlow is never imported: the
build must stay quick and must work where TensorFlow is not yet installed.
"""

from __future__ import annotations

import importlib.metadata
import pathlib
import sys
import sysconfig
from typing import NamedTuple

DISTRIBUTIONS = ("tensorflow", "tensorflow-cpu", "tensorflow-rocm")
SUPPORTED_MINORS = ("2.20", "2.21")
DEFAULT_MINOR = "2.21"


class Installed(NamedTuple):
    """One TensorFlow wheel found on disk."""

    distribution: str
    version: str
    package: pathlib.Path


def find(search_path: list[str] | None = None) -> Installed | None:
    """Returns the first TensorFlow wheel on ``search_path`` (default: ``sys.path``, then this environment)."""
    paths = list(sys.path) if search_path is None else list(search_path)
    if search_path is None:
        # pip's build isolation hides the environment's own site-packages from sys.path.
        paths += [sysconfig.get_path("platlib"), sysconfig.get_path("purelib")]
    for folder in dict.fromkeys(paths):
        package = pathlib.Path(folder or ".") / "tensorflow"
        if not (package / "include").is_dir():
            continue
        for dist in importlib.metadata.distributions(path=[str(package.parent)]):
            name = (dist.metadata["Name"] or "").lower().replace("_", "-")
            if name in DISTRIBUTIONS:
                return Installed(name, dist.version, package)
    return None


def minor_of(version: str) -> str:
    """Returns "2.21" for "2.21.0"."""
    return ".".join(version.split(".")[:2])


def _main(argv: list[str]) -> int:
    extra = [a for a in argv[1:] if a]
    found = (find(extra) if extra else None) or find()
    if found is None:
        sys.stderr.write("install it with: pip install 'tensorflow==" + DEFAULT_MINOR + ".*'")
        return 1
    sys.stdout.write(f"{found.distribution};{found.version};{found.package}")
    return 0


if __name__ == "__main__":
    sys.exit(_main(sys.argv[1:]))
