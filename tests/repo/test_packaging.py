"""A wheel and an sdist contain the right files, and the wheel works outside of the checkout."""

import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from tests.support.fresh_environment import run

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def sdist(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sdist")
    code = f"from scikit_build_core.build import build_sdist; build_sdist({str(folder)!r})"
    run(sys.executable, "-c", code, cwd=root)
    return next(folder.glob("*.tar.gz"))


@pytest.fixture(scope="module")
def wheel(sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel that pip builds from the sdist."""
    folder = tmp_path_factory.mktemp("wheel")
    pip = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation"]
    run(*pip, "--wheel-dir", str(folder), str(sdist), cwd=folder)
    return next(folder.glob("*.whl"))


def test_sdist_holds_the_sources_and_nothing_compiled(root: Path, sdist: Path):
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    sources = {
        str(p.relative_to(root))
        for pattern in ("cc/**/*.cc", "cc/**/*.h", "cc/**/*.inc", "**/*.py", "cmake/*", "CMake*")
        for p in (root / "de_core").glob(pattern)
        if p.is_file()
    }
    assert sources - names == set()
    assert {"pyproject.toml", "README.md", "LICENSE", "NOTICE"} <= names
    assert [
        n for n in names if n.endswith((".so", ".o")) or n.startswith(("build", "server"))
    ] == []


def test_wheel_holds_the_package_and_its_library_alone(root: Path, wheel: Path):
    assert wheel.name.split("-")[2:4] == ["py3", "none"]
    with zipfile.ZipFile(wheel) as archive:
        names = {n for n in archive.namelist() if ".dist-info/" not in n}
    python = {
        str(p.relative_to(root))
        for package in ("de_core", "de_core_cli")
        for p in (root / package).rglob("*.py")
        if p.parent.name != "_build"
    }
    made = {"py.typed", "_de_ops.so", "_de_tfra_ops.so", "_de_ops.json"}
    assert names == python | {f"de_core/{name}" for name in made}


def test_wheel_requires_the_minor_it_was_compiled_against(wheel: Path):
    import tensorflow as tf

    minor = ".".join(tf.__version__.split(".")[:2])
    with zipfile.ZipFile(wheel) as archive:
        name = next(n for n in archive.namelist() if n.endswith(".dist-info/METADATA"))
        metadata = archive.read(name).decode()
    assert f"=={minor}.*" in metadata
    assert "Requires-Python: <3.14,>=3.10" in metadata
