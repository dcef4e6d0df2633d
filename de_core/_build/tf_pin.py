"""Finds the TensorFlow of an environment, and pins its minor version in the wheel's requirements.

An op library works with exactly one TensorFlow minor version, so the wheel must require the minor
version that it was compiled against. There are two callers, both at build time: scikit-build-core,
as a dynamic-metadata provider, and CMake (``tf_pin.py --locate``). This module uses the standard
library only and never imports TensorFlow. So the build stays fast, and works before TensorFlow is
installed.
"""

from __future__ import annotations

import importlib.metadata
import os
import pathlib
import re
import sys
import sysconfig
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

DISTRIBUTIONS = ("tensorflow", "tensorflow-cpu", "tensorflow-rocm", "tensorflow-aarch64")
OLDEST_MINOR = "2.19"
DEFAULT_MINOR = "2.21"
#: Selects the minor version if no TensorFlow is installed yet, e.g. DE_CORE_TENSORFLOW=2.20. The
#: value "any" is for a wheel with compiled libraries for several: it requires no TensorFlow.
MINOR_VARIABLE = "DE_CORE_TENSORFLOW"
OTHER_DEPENDENCIES = ("numpy>=1.26", "rich>=13")


class Installed(NamedTuple):
    """One TensorFlow wheel found on disk."""

    distribution: str
    version: str
    package: pathlib.Path


def minor_of(version: str) -> str:
    """Returns the minor version, such as "2.21" for "2.21.0".

    Raises:
        ValueError: The version does not begin with two numbers.
    """
    match = re.match(r"(\d+)\.(\d+)", version)
    if match is None:
        msg = f"A TensorFlow version must begin with MAJOR.MINOR. Received: version={version!r}"
        raise ValueError(msg)
    return f"{match[1]}.{match[2]}"


def search_path() -> Iterator[str]:
    """Yields the folders that may contain TensorFlow, nearest first.

    The wheel will be installed in the environment's own site-packages. pip's build isolation hides
    it from ``sys.path``, but ``sysconfig`` still names it. A virtual environment with access to the
    system's packages adds the site-packages of its base interpreter.
    """
    yield from sys.path
    yield from (sysconfig.get_path("platlib"), sysconfig.get_path("purelib"))
    config = pathlib.Path(sys.prefix, "pyvenv.cfg")
    text = config.read_text("utf-8") if config.is_file() else ""
    if re.search(r"(?mi)^include-system-site-packages\s*=\s*true", text):
        base = {"base": sys.base_prefix, "platbase": sys.base_exec_prefix}
        yield sysconfig.get_path("platlib", vars=base)


def find(folders: Sequence[str] | None = None) -> Installed | None:
    """Returns the first TensorFlow wheel in ``folders`` (default: ``search_path()``), or None."""
    for folder in dict.fromkeys(search_path() if folders is None else folders):
        package = pathlib.Path(folder or ".").absolute() / "tensorflow"
        if not (package / "include").is_dir():
            continue
        for distribution in importlib.metadata.distributions(path=[str(package.parent)]):
            name = (distribution.metadata["Name"] or "").lower().replace("_", "-")
            if name in DISTRIBUTIONS:
                return Installed(name, distribution.version, package)
    return None


def check_supported(found: Installed) -> None:
    """Rejects a TensorFlow that is too old for these sources.

    Raises:
        RuntimeError: ``found`` is older than ``OLDEST_MINOR``. Versions newer than the tested ones
            are allowed: only the compiler can tell.
    """
    if _ordered(found.version) < _ordered(OLDEST_MINOR):
        msg = (
            f"de_core compiles against TensorFlow {OLDEST_MINOR} or newer. Received: "
            f"{found.distribution}={found.version} in {found.package.parent}. "
            f"Run: pip install '{found.distribution}=={DEFAULT_MINOR}.*'"
        )
        raise RuntimeError(msg)


def requirement(found: Installed | None, environment: Mapping[str, str]) -> str:
    """Returns the TensorFlow requirement of the wheel, e.g. "tensorflow==2.21.*"."""
    if found is not None:
        return f"{found.distribution}=={minor_of(found.version)}.*"
    return f"tensorflow=={minor_of(environment.get(MINOR_VARIABLE) or DEFAULT_MINOR)}.*"


def get_requires_for_dynamic_metadata(_settings: Mapping[str, Any]) -> list[str]:
    """Requires a TensorFlow to compile against if the environment has none yet."""
    if os.environ.get(MINOR_VARIABLE) == "any":
        return []
    found = _find_supported()
    return [] if found else [requirement(None, os.environ)]


def dynamic_metadata(_settings: Mapping[str, Any], _project: Mapping[str, Any]) -> dict[str, Any]:
    """Returns ``project.dependencies``: the pinned TensorFlow, and the other dependencies."""
    if os.environ.get(MINOR_VARIABLE) == "any":
        return {"dependencies": list(OTHER_DEPENDENCIES)}
    return {"dependencies": [requirement(_find_supported(), os.environ), *OTHER_DEPENDENCIES]}


def dynamic_wheel(_settings: Mapping[str, Any]) -> dict[str, bool]:
    """Declares that wheels of one sdist may differ in their requirements."""
    return {"dependencies": True}


def _ordered(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in minor_of(version).split("."))


def _find_supported() -> Installed | None:
    found = find()
    if found is not None:
        try:
            check_supported(found)
        except RuntimeError as error:
            # Print one sentence in pip's output instead of a build backend's traceback.
            sys.exit(str(error))
    return found


def _main(arguments: list[str]) -> None:
    folders = [argument for argument in arguments if argument not in ("--locate", "")]
    found = (find(folders) if folders else None) or _find_supported()
    if found is None:
        sys.exit(f"it has none. Run: pip install '{requirement(None, os.environ)}'")
    sys.stdout.write(f"{found.distribution};{found.version};{found.package}")


if __name__ == "__main__":
    _main(sys.argv[1:])
