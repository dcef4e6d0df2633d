"""Checks at import that the compiled ops fit this environment, and names the fix if not.

An op library works only with the TensorFlow minor version that it was compiled for. With another
version, loading fails with an unreadable missing symbol. So we compare the versions first. We read
them from the wheels' metadata, without importing TensorFlow.

A wheel may hold a library for each of several minor versions (``_ops/2.21/_de_ops.so``). A folder
of sources hides an installed package of the same name. If its ops are not compiled, it uses the
installed ones, provided that they were compiled from the same sources.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
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
    """How the library was compiled. The build writes it to ``_de_ops.json``.

    Attributes:
        tensorflow: The TensorFlow version.
        distribution: The wheel that TensorFlow came from.
        compiler: The compiler and its version.
        sources: The digest of the C++ sources; empty if unknown.
    """

    tensorflow: str
    distribution: str
    compiler: str
    sources: str = ""


def library_path() -> str:
    """Returns the path of the op library for this environment, whether or not it exists."""
    return str(_library())


def tfra_library_path() -> str:
    """Returns the path of the library of tfra's ops, beside the op library."""
    return str(_library().with_name("_de_tfra_ops.so"))


@functools.cache
def _library() -> pathlib.Path:
    found = libraries(_FOLDER)
    if not found and (_FOLDER / "cc").is_dir():  # use installed ops of the same C++ sources
        others = [path for each in sys.path for path in libraries(pathlib.Path(each) / "de_core")]
        digest = source_digest(_FOLDER) if others else ""
        builds = {path: read_build(path.with_suffix(".json")) for path in others}
        found = [path for path, build in builds.items() if build and build.sources == digest]
    return best(found, installed_tensorflows().values()) or _FOLDER / "_de_ops.so"


def libraries(package: pathlib.Path) -> list[pathlib.Path]:
    """Returns the op libraries in a folder ``de_core``."""
    own = package / "_de_ops.so"
    return [own] if own.is_file() else sorted(package.glob("_ops/*/_de_ops.so"))


def minors_beside(library: pathlib.Path) -> list[str]:
    """Returns the minor versions of a package with several libraries; empty for a single one."""
    several = library.parent.parent
    if several.name != "_ops":
        return []
    return [path.parent.name for path in sorted(several.glob("*/_de_ops.so"))]


def best(found: list[pathlib.Path], versions: Iterable[str]) -> pathlib.Path | None:
    """Returns the library for one of the TensorFlow ``versions``, else the newest, else None."""
    minors = {minor_of(version) for version in versions}
    builds = {path: read_build(path.with_suffix(".json")) for path in found}
    fitting = [path for path, build in builds.items() if build and minor_of(build[0]) in minors]
    return next(iter(fitting or reversed(found)), None)


def source_digest(package: pathlib.Path) -> str:
    """Returns the SHA-256 of the C++ sources in a folder ``de_core``, as hexadecimal digits."""
    total = hashlib.sha256()
    parts = ("engine", "kernels", "ops", "tfra")
    files = [path for part in parts for path in (package / "cc" / part).rglob("*")]
    for path in sorted(path for path in files if path.suffix in (".cc", ".h", ".inc")):
        total.update(f"{path.relative_to(package).as_posix()}\0".encode())
        total.update(path.read_bytes() + b"\0")
    return total.hexdigest()


def check() -> None:
    """Raises if the compiled ops cannot work here.

    Raises:
        ImportError: The Python version, the TensorFlow version or the library does not fit. The
            message contains the command that repairs the environment.
    """
    message = problem(
        python=sys.version_info[:2],
        installed=installed_tensorflows(),
        build=read_build(_library().with_suffix(".json")),
        library=_library(),
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
    """Returns an error message for the first problem, or None if there is no problem."""
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
    *others, last = minors_beside(library) or [wanted]
    supported = f"{', '.join(others)} or {last}" if others else last
    fix = f"Run: pip install '{build.distribution}=={wanted}.*'"
    if not installed:
        return f"de_core needs TensorFlow {supported}. Received: no TensorFlow is installed. {fix}"
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
            f"de_core was compiled for TensorFlow {supported} and works with no other minor "
            f"version. Received: {received}. {fix}, or compile de_core again: {install_command}"
        )
    return None


def installed_tensorflows() -> dict[str, str]:
    """Returns the versions of TensorFlow's wheels that are installed, by name."""
    found = {}
    for name in TENSORFLOW_WHEELS:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    if not found:  # a TensorFlow built from source may have no metadata: import it
        with contextlib.suppress(ImportError):
            import tensorflow as tf

            found["tensorflow"] = str(tf.__version__)
    return found


def read_build(path: pathlib.Path) -> Build | None:
    """Reads ``_de_ops.json``; returns None if it cannot be read."""
    try:
        fields = json.loads(path.read_text("utf-8"))
        build = Build(fields["tensorflow"], fields["distribution"], fields["compiler"])
        return build._replace(sources=fields.get("sources", ""))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def install_command(root: pathlib.Path, origin: str | None = None) -> str:
    """Returns the command that compiles and installs de_core again.

    `origin` has the contents of pip's ``direct_url.json``, if there is one.
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
