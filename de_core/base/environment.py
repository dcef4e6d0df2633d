"""Checks at import that the compiled ops fit this environment, and names the fix if not.

An op library works only with the TensorFlow minor version that it was compiled for. With another
version, loading fails with an unreadable missing symbol. So we compare the versions first. We read
them from the wheels' metadata, without importing TensorFlow.
"""

from __future__ import annotations

import importlib.metadata
import json
import pathlib
import shlex
import sys
import urllib.parse
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

OLDEST_PYTHON = (3, 10)
NEWEST_PYTHON = (3, 13)
#: Wheels that install a package called ``tensorflow``.
TENSORFLOW_WHEELS = (
    "tensorflow",
    "tensorflow-cpu",
    "tensorflow-rocm",
    "tensorflow-aarch64",
    "tf-nightly",
)

_FOLDER = pathlib.Path(__file__).resolve().parent.parent


class Build(NamedTuple):
    """The versions for which the library was compiled. CMake writes them to ``_de_ops.json``."""

    tensorflow: str
    distribution: str
    compiler: str


def library_path() -> str:
    """Returns the path of the compiled op library, whether or not it exists."""
    return str(_FOLDER / "_de_ops.so")


def check() -> None:
    """Raises if the compiled ops cannot work here.

    Raises:
        ImportError: The Python version, the TensorFlow version or the library does not fit. The
            message contains the command that repairs the environment.
    """
    message = problem(
        python=sys.version_info[:2],
        installed=installed_tensorflows(TENSORFLOW_WHEELS),
        build=read_build(_FOLDER / "_de_ops.json"),
        library=pathlib.Path(library_path()),
        install_command=install_command(_FOLDER.parent, _origin()),
    )
    if message is not None:
        raise ImportError(message)


def problem(
    *,
    python: tuple[int, ...],
    installed: Mapping[str, str],
    build: Build | None,
    library: pathlib.Path,
    install_command: str,
) -> str | None:
    """Returns an error message for the first problem, or None if there is no problem.

    Args:
        python: Major and minor version of the interpreter.
        installed: The version of each installed TensorFlow wheel, by name.
        build: The versions for which the library was compiled; None if unknown.
        library: Path where the library must be.
        install_command: The command that compiles and installs this project.
    """
    if not OLDEST_PYTHON <= tuple(python[:2]) <= NEWEST_PYTHON:
        return (
            f"de_core needs Python {_dotted(OLDEST_PYTHON)} to {_dotted(NEWEST_PYTHON)}. "
            f"Received: python={_dotted(python)}. Create an environment with such a Python, "
            f"for example: python{_dotted(NEWEST_PYTHON)} -m venv .venv"
        )
    if not library.is_file() or build is None:
        return (
            f"de_core's compiled ops must lie in {library} with their _de_ops.json. "
            f"Received: {library.name}={'present' if library.is_file() else 'missing'}, "
            f"_de_ops.json={'missing' if build is None else 'present'}. Run: {install_command}"
        )
    wanted = minor_of(build.tensorflow)
    fix = f"Run: pip install '{build.distribution}=={wanted}.*'"
    if not installed:
        return f"de_core needs TensorFlow {wanted}. Received: no TensorFlow is installed. {fix}"
    received = ", ".join(f"{name}={version}" for name, version in sorted(installed.items()))
    if len(set(installed.values())) > 1:
        unwanted = " ".join(sorted(set(installed) - {build.distribution}))
        return (
            "Only one TensorFlow may be installed: these wheels overwrite each other's files. "
            f"Received: {received}. Run: pip uninstall {unwanted}, then: "
            f"pip install --force-reinstall --no-deps '{build.distribution}=={wanted}.*'"
        )
    if minor_of(next(iter(installed.values()))) != wanted:
        return (
            f"de_core was compiled for TensorFlow {wanted} and works with no other minor version. "
            f"Received: {received}. {fix}, or compile de_core again: {install_command}"
        )
    return None


def installed_tensorflows(wheels: Iterable[str]) -> dict[str, str]:
    """Returns the versions of the ``wheels`` that are installed, by name."""
    found = {}
    for name in wheels:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    if not found:
        version = _imported_version()
        if version is not None:
            found["tensorflow"] = version
    return found


def read_build(path: pathlib.Path) -> Build | None:
    """Reads ``_de_ops.json``; returns None if it cannot be read."""
    try:
        fields = json.loads(path.read_text("utf-8"))
        return Build(fields["tensorflow"], fields["distribution"], fields["compiler"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def install_command(root: pathlib.Path, origin: str | None = None) -> str:
    """Returns the command that compiles and installs de_core again.

    Args:
        root: The folder that holds the package.
        origin: The contents of pip's ``direct_url.json``, or None if there is none.
    """
    if (root / "pyproject.toml").is_file() and (root / "de_core" / "CMakeLists.txt").is_file():
        return f"pip install --no-deps -e {shlex.quote(str(root))}"
    sources = "de-core"
    if origin is not None:
        noted = json.loads(origin)
        sources = "SOURCES, with SOURCES the folder of its sources"
        if "dir_info" in noted:
            path = urllib.parse.unquote(urllib.parse.urlsplit(noted["url"]).path)
            sources = shlex.quote(path)
    return f"pip install --no-cache-dir --force-reinstall --no-deps {sources}"


def minor_of(version: str) -> str:
    """Returns the minor version, such as "2.21" for "2.21.0"."""
    return ".".join(version.split(".")[:2])


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(str(part) for part in version)


def _origin() -> str | None:
    try:
        return importlib.metadata.distribution("de-core").read_text("direct_url.json")
    except importlib.metadata.PackageNotFoundError:
        return None


def _imported_version() -> str | None:
    # A TensorFlow built from source may have no wheel metadata. Then only importing it tells the
    # version.
    try:
        import tensorflow as tf
    except ImportError:
        return None
    return str(tf.__version__)
