"""The check of a broken environment names the problem and its fix in one sentence."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest


@pytest.fixture
def well(compat: ModuleType, tmp_path: Path) -> dict[str, Any]:
    """Returns the arguments for an environment without problems."""
    library = tmp_path / "_de_ops.so"
    library.touch()
    return {
        "python": (3, 11),
        "installed": {"tensorflow": "2.21.0"},
        "build": compat.Build("2.21.0", "tensorflow", "GNU 12.2.0"),
        "library": library,
        "install_command": "pip install -e /project",
    }


def test_no_problem_where_all_fits(compat: ModuleType, well: dict[str, Any]):
    assert compat.problem(**well) is None


@pytest.mark.parametrize("version", ["2.21.1", "2.21.0rc1", "2.21.9"])
def test_another_patch_of_the_same_minor_fits(compat: ModuleType, well: dict[str, Any], version):
    assert compat.problem(**{**well, "installed": {"tensorflow": version}}) is None


def test_the_cpu_wheel_is_a_tensorflow_too(compat: ModuleType, well: dict[str, Any]):
    assert compat.problem(**{**well, "installed": {"tensorflow-cpu": "2.21.0"}}) is None


def test_another_minor_is_named_with_both_repairs(compat: ModuleType, well: dict[str, Any]):
    message = compat.problem(**{**well, "installed": {"tensorflow": "2.20.0"}})
    assert "compiled for TensorFlow 2.21" in message
    assert "Received: tensorflow=2.20.0" in message
    assert "pip install 'tensorflow==2.21.*'" in message
    assert "pip install -e /project" in message


def test_each_minor_of_a_wheel_with_several_libraries_is_named(
    compat: ModuleType, well: dict[str, Any], tmp_path: Path
):
    for minor in ("2.19", "2.20", "2.21"):
        library = tmp_path / "_ops" / minor / "_de_ops.so"
        library.parent.mkdir(parents=True)
        library.touch()
    other = {"library": library, "installed": {"tensorflow": "2.18.1"}}
    message = compat.problem(**{**well, **other})
    assert "compiled for TensorFlow 2.19, 2.20 or 2.21 and" in message
    assert "Received: tensorflow=2.18.1" in message
    missing = compat.problem(**{**well, **other, "installed": {}})
    assert "needs TensorFlow 2.19, 2.20 or 2.21." in missing


def test_minors_are_compared_as_numbers(compat: ModuleType, well: dict[str, Any]):
    message = compat.problem(**{**well, "installed": {"tensorflow": "2.2.1"}})
    assert "Received: tensorflow=2.2.1" in message


def test_no_tensorflow_names_the_one_to_install(compat: ModuleType, well: dict[str, Any]):
    message = compat.problem(**{**well, "installed": {}})
    assert "no TensorFlow is installed" in message
    assert "pip install 'tensorflow==2.21.*'" in message


def test_two_wheels_of_different_versions_are_refused(compat: ModuleType, well: dict[str, Any]):
    both = {"tensorflow": "2.21.0", "tensorflow-cpu": "2.20.0"}
    message = compat.problem(**{**well, "installed": both})
    assert "Only one TensorFlow" in message
    assert "pip uninstall tensorflow-cpu" in message


def test_two_wheels_of_one_version_are_harmless(compat: ModuleType, well: dict[str, Any]):
    both = {"tensorflow": "2.21.0", "tensorflow-cpu": "2.21.0"}
    assert compat.problem(**{**well, "installed": both}) is None


@pytest.mark.parametrize("python", [(3, 9), (3, 14), (2, 7)])
def test_unsupported_python_is_named(compat: ModuleType, well: dict[str, Any], python):
    message = compat.problem(**{**well, "python": python})
    assert f"Received: python={python[0]}.{python[1]}" in message
    assert "Python 3.10 to 3.13" in message


@pytest.mark.parametrize("python", [(3, 10), (3, 13)])
def test_the_ends_of_the_python_range_are_supported(compat: ModuleType, well: dict, python):
    assert compat.problem(**{**well, "python": python}) is None


def test_missing_library_names_the_command(compat: ModuleType, well: dict[str, Any]):
    message = compat.problem(**{**well, "library": Path("/nowhere/_de_ops.so")})
    assert "/nowhere/_de_ops.so" in message
    assert "_de_ops.so=missing" in message
    assert "Run: pip install -e /project" in message


def test_library_without_its_description_is_refused(compat: ModuleType, well: dict[str, Any]):
    assert "_de_ops.json=missing" in compat.problem(**{**well, "build": None})


def test_messages_are_one_line(compat: ModuleType, well: dict[str, Any]):
    broken = ({"installed": {}}, {"python": (3, 9)}, {"build": None}, {"library": Path("/x")})
    for change in broken:
        assert "\n" not in compat.problem(**{**well, **change})


def test_description_is_read_back(compat: ModuleType, tmp_path: Path):
    path = tmp_path / "_de_ops.json"
    fields = {"tensorflow": "2.21.0", "distribution": "tensorflow", "compiler": "GNU 12"}
    path.write_text(json.dumps(fields), encoding="utf-8")
    assert compat.read_build(path) == compat.Build("2.21.0", "tensorflow", "GNU 12")


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"tensorflow": "2.21.0"}', "null"])
def test_damaged_description_counts_as_none(compat: ModuleType, tmp_path: Path, text: str):
    path = tmp_path / "_de_ops.json"
    path.write_text(text, encoding="utf-8")
    assert compat.read_build(path) is None


def test_checkout_is_told_from_an_installed_package(compat: ModuleType, root: Path, tmp_path: Path):
    assert compat.install_command(root) == f"pip install --no-deps -e {root}"
    assert compat.install_command(tmp_path).endswith(" de-core")


def test_package_installed_from_a_folder_names_that_folder(compat: ModuleType, tmp_path: Path):
    origin = '{"url": "file:///home/ann/the%20project", "dir_info": {}}'
    assert compat.install_command(tmp_path, origin).endswith(" '/home/ann/the project'")


def test_package_installed_from_a_wheel_asks_for_the_sources(compat: ModuleType, tmp_path: Path):
    origin = '{"url": "file:///tmp/de_core-0.1.0-py3-none-linux_x86_64.whl", "archive_info": {}}'
    assert "SOURCES" in compat.install_command(tmp_path, origin)


def test_installed_tensorflow_is_found_without_importing_it(compat: ModuleType):
    found = compat.installed_tensorflows(compat.TENSORFLOW_WHEELS)
    assert found
    assert all(version[0].isdigit() for version in found.values())


def test_library_lies_beside_the_python_sources(compat: ModuleType, root: Path):
    assert compat.library_path() == str(root / "de_core" / "_de_ops.so")
