"""The check of a broken environment names the problem and its fix in one sentence."""

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


TWO = {"tensorflow": "2.21.0", "tensorflow-cpu": "2.20.0"}


@pytest.mark.parametrize(
    "change",
    [
        {},
        *({"installed": {"tensorflow": each}} for each in ("2.21.1", "2.21.0rc1", "2.21.9")),
        {"installed": {"tensorflow-cpu": "2.21.0"}},
        {"installed": dict.fromkeys(TWO, "2.21.0")},
        {"python": (3, 10)},
        {"python": (3, 13)},
    ],
)
def test_no_problem_where_all_fits(compat: ModuleType, well: dict[str, Any], change):
    assert compat.problem(**{**well, **change}) is None


@pytest.mark.parametrize(
    ("change", "parts"),
    [
        (
            {"installed": {"tensorflow": "2.20.0"}},
            [
                "compiled for TensorFlow 2.21",
                "Received: tensorflow=2.20.0",
                "pip install 'tensorflow==2.21.*'",
                "pip install -e /project",
            ],
        ),
        # Minor versions are compared as numbers.
        ({"installed": {"tensorflow": "2.2.1"}}, ["Received: tensorflow=2.2.1"]),
        (
            {"installed": {}},
            ["no TensorFlow is installed", "pip install 'tensorflow==2.21.*'"],
        ),
        ({"installed": TWO}, ["Only one TensorFlow", "pip uninstall tensorflow-cpu"]),
        *(
            ({"python": (3, minor)}, [f"Received: python=3.{minor}", "Python 3.10 to 3.13"])
            for minor in (9, 14)
        ),
        ({"python": (2, 7)}, ["Received: python=2.7"]),
        (
            {"library": Path("/nowhere/_de_ops.so")},
            ["/nowhere/_de_ops.so", "_de_ops.so=missing", "Run: pip install -e /project"],
        ),
        ({"build": None}, ["_de_ops.json=missing"]),
    ],
)
def test_a_problem_is_named_in_one_line(compat: ModuleType, well: dict[str, Any], change, parts):
    message = compat.problem(**{**well, **change})
    assert [part for part in parts if part not in message] == []
    assert "\n" not in message


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


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"tensorflow": "2.21.0"}', "null"])
def test_damaged_description_counts_as_none(compat: ModuleType, tmp_path: Path, text: str):
    path = tmp_path / "_de_ops.json"
    path.write_text(text, encoding="utf-8")
    assert compat.read_build(path) is None


WHEEL = '{"url": "file:///tmp/de_core-0.1.0-py3-none-linux_x86_64.whl", "archive_info": {}}'
FOLDER = '{"url": "file:///home/ann/the%20project", "dir_info": {}}'


def test_the_command_installs_what_was_installed(compat: ModuleType, root: Path, tmp_path: Path):
    assert compat.install_command(root) == f"pip install --no-deps -e {root}"
    assert compat.install_command(tmp_path).endswith(" de-core")
    assert compat.install_command(tmp_path, FOLDER).endswith(" '/home/ann/the project'")
    assert "SOURCES" in compat.install_command(tmp_path, WHEEL)
