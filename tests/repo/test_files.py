"""Tests rules that hold for every source file."""

import ast
import collections
import re
from pathlib import Path

LONGEST = 400
LONGEST_TEST = 500
LONGEST_FUNCTION = 80
#: The most files directly in a folder with subfolders, and in a folder without.
MOST_BESIDE_FOLDERS = 12
MOST_ALONE = 25


def is_test(path: Path) -> bool:
    return path.parts[0] == "tests" or "testing" in path.parts


def test_no_file_is_too_long(root: Path, sources: list[Path]):
    lengths = {path: len((root / path).read_text("utf-8").splitlines()) for path in sources}
    long = {
        str(path): length
        for path, length in lengths.items()
        if length > (LONGEST_TEST if is_test(path) else LONGEST)
    }
    assert long == {}


def test_every_header_is_guarded(root: Path, sources: list[Path]):
    guard = re.compile(r"^#ifndef (\w+)\n#define \1$|^#pragma once$", re.MULTILINE)
    headers = [path for path in sources if path.suffix == ".h"]
    assert headers
    assert [str(p) for p in headers if not guard.search((root / p).read_text("utf-8"))] == []


def test_the_ops_use_no_std_filesystem(root: Path, sources: list[Path]):
    """Wheels must load with libstdc++ 8, which lacks its functions."""
    ops = [path for path in sources if path.suffix in (".h", ".cc") and not is_test(path)]
    assert ops
    assert [str(p) for p in ops if "#include <filesystem>" in (root / p).read_text("utf-8")] == []


def test_every_python_package_folder_has_an_init(root: Path):
    missing = {
        str(path.parent.relative_to(root))
        for folder in ("de_core", "de_core_cli", "server")
        for path in (root / folder).rglob("*.py")
        if not (path.parent / "__init__.py").exists() and path.parent.name != "_build"
    }
    assert missing == set()


def crowded(files: list[Path]) -> dict[str, int]:
    """Returns the folders with too many files, and the number of their files."""
    names = [path for path in files if path.name != "__init__.py"]
    parents = {parent for path in names for parent in path.parent.parents}
    held = collections.Counter(path.parent for path in names)
    return {
        str(folder): count
        for folder, count in held.items()
        if count > (MOST_BESIDE_FOLDERS if folder in parents else MOST_ALONE)
    }


def test_no_folder_holds_too_many_files(sources: list[Path]):
    assert crowded(sources) == {}


def test_a_crowded_folder_is_noticed():
    flat = [Path("a") / f"{number}.py" for number in range(MOST_ALONE)]
    assert crowded(flat) == {}
    assert crowded([*flat, Path("a/more.py")]) == {"a": MOST_ALONE + 1}
    assert crowded([*flat[:13], Path("a/b/c.py")]) == {"a": 13}
    assert crowded([*flat[:12], Path("a/b/c.py"), Path("a/__init__.py")]) == {}


def long_functions(text: str) -> dict[str, int]:
    """Returns the functions that are too long without their docstring, with their lines.

    A comment in the function that begins with "Long:" gives the reason and allows the length.
    """
    lines, found = text.splitlines(), {}
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            own = lines[node.lineno - 1 : node.end_lineno]
            length = len(own) - len((ast.get_docstring(node) or "").splitlines())
            if length > LONGEST_FUNCTION and not any("# Long: " in line for line in own):
                found[node.name] = length
    return found


def test_no_function_is_too_long(root: Path, sources: list[Path]):
    found = {
        str(path): long
        for path in sources
        if path.suffix == ".py" and (long := long_functions((root / path).read_text("utf-8")))
    }
    assert found == {}


def test_a_long_function_is_noticed():
    statements = "    pass\n" * LONGEST_FUNCTION
    assert long_functions(f"def f():\n{statements}") == {"f": LONGEST_FUNCTION + 1}
    assert long_functions(f"def f():\n    # Long: a list.\n{statements}") == {}
    assert long_functions(f'def f():\n    """One line."""\n{statements[9:]}') == {}
