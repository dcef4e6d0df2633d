"""Fixtures of the repository's tests: its root, its files, and modules loaded by path."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = (
    "bench",
    "de_core",
    "de_core_cli",
    "server",
    "examples",
    "scripts",
    "serving_ops",
    "tests",
)


@pytest.fixture(scope="session")
def root() -> Path:
    return ROOT


@pytest.fixture(scope="session")
def sources(root: Path) -> list[Path]:
    """Every source file of the project, relative to its root."""
    suffixes = (".py", ".cc", ".h", ".cmake")
    return sorted(
        path.relative_to(root)
        for folder in FOLDERS
        for path in (root / folder).rglob("*")
        if path.is_file() and (path.suffix in suffixes or path.name in ("CMakeLists.txt", "BUILD"))
    )


def load_module(relative: str) -> ModuleType:
    """Loads one file as a separate module: importing its package would need compiled ops."""
    path = ROOT / relative
    spec = importlib.util.spec_from_file_location(f"loaded_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def compat() -> ModuleType:
    return load_module("de_core/base/environment.py")


@pytest.fixture(scope="session")
def tf_pin() -> ModuleType:
    return load_module("de_core/_build/tf_pin.py")
