"""The commands, links and code of the README work."""

import re
from pathlib import Path

import pytest


@pytest.fixture(scope="module")
def readme(root: Path) -> str:
    return (root / "README.md").read_text("utf-8")


def test_commands_of_readme_and_agents_exist(root: Path, readme: str):
    agents = (root / "AGENTS.md").read_text("utf-8")
    makefile = (root / "Makefile").read_text("utf-8")
    named = set(re.findall(r"(?:^|`)make ([a-z-]+)", readme + agents, re.MULTILINE))
    assert {"demo", "test"} <= named
    assert {name for name in named if not re.search(rf"^{name}:", makefile, re.MULTILINE)} == set()


def test_linked_files_and_listed_folders_exist(root: Path, readme: str):
    links = re.findall(r"\]\(([^)#:]+)\)", readme)
    folders = re.findall(r"^\| `([^`]+)`", readme, re.MULTILINE)
    assert [name for name in links + folders if not (root / name).exists()] == []
