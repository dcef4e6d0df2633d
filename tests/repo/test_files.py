"""Rules that hold for every source file."""

from __future__ import annotations

import ast
import re
from pathlib import Path

LONGEST = 400
LONGEST_TEST = 500


def is_test(path: Path) -> bool:
    return path.parts[0] == "tests" or "testing" in path.parts


def bare_excepts(text: str) -> list[int]:
    return [
        node.lineno
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.ExceptHandler) and node.type is None
    ]


def test_no_file_is_too_long(root: Path, sources: list[Path]):
    lengths = {path: len((root / path).read_text("utf-8").splitlines()) for path in sources}
    long = {
        str(path): length
        for path, length in lengths.items()
        if length > (LONGEST_TEST if is_test(path) else LONGEST)
    }
    assert long == {}


def test_no_bare_except(root: Path, sources: list[Path]):
    found = {
        str(path): lines
        for path in sources
        if path.suffix == ".py" and (lines := bare_excepts((root / path).read_text("utf-8")))
    }
    assert found == {}


def test_a_bare_except_is_noticed():
    assert bare_excepts("try:\n    f()\nexcept:\n    pass\n") == [3]
    assert bare_excepts("try:\n    f()\nexcept ValueError:\n    pass\n") == []


def test_every_header_is_guarded(root: Path, sources: list[Path]):
    guard = re.compile(r"^#ifndef (\w+)\n#define \1$|^#pragma once$", re.MULTILINE)
    headers = [path for path in sources if path.suffix == ".h"]
    assert headers
    assert [str(p) for p in headers if not guard.search((root / p).read_text("utf-8"))] == []


def test_every_python_package_folder_has_an_init(root: Path):
    missing = {
        str(path.parent.relative_to(root))
        for folder in ("de_core", "server")
        for path in (root / folder).rglob("*.py")
        if not (path.parent / "__init__.py").exists() and path.parent.name != "_build"
    }
    assert missing == set()
