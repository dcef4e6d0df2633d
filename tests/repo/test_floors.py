"""Packages of the library, and folders of C++ code, import only from lower layers ("floors")."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

#: The library's floors, lowest first: packages of de_core. "" is `de_core/__init__.py` with the
#: public names, which the parameter server's command imports.
LIBRARY = (
    ("base",),
    ("tables",),
    ("storage", "distributed", "snapshot"),
    ("checkpoint",),
    ("variable",),
    ("lookup", "optimizers", "exports"),
    ("layers", "metrics", "tfra_files"),
    ("tfra",),
    ("",),
    ("parameter_server",),
)
#: The engine's floors, lowest first: folders of de_core/cc/engine.
ENGINE = (
    ("base",),
    ("memory",),
    ("rows",),
    ("initial",),
    ("optimizer",),
    ("index",),
    ("batch",),
    ("policy",),
    ("snapshot",),
    ("backend",),
    ("table",),
    ("save",),
    ("tier",),
    ("serving",),
)
#: The kernels' floors, lowest first: folders of de_core/cc/kernels.
KERNELS = (
    ("base",),
    ("background",),
    ("files",),
    ("table",),
    ("batch", "snapshot"),
    ("serving",),
)


def floor_of(floors: tuple[tuple[str, ...], ...], room: str) -> int:
    """Returns a package's floor; fails the test if `floors` does not name the package."""
    for number, rooms in enumerate(floors):
        if room in rooms:
            return number
    pytest.fail(f"{room!r} is on no floor: add it to the table of floors")


def may_use(floors: tuple[tuple[str, ...], ...], room: str, used: str) -> bool:
    return room == used or floor_of(floors, used) < floor_of(floors, room)


def modules(root: Path) -> dict[str, Path]:
    """Returns the files of the library's modules by dotted name."""
    found = {}
    for path in (root / "de_core").rglob("*.py"):
        if "_build" not in path.parts:
            parts = path.relative_to(root).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imported(tree: ast.AST, known: dict[str, Path], typing: bool = False) -> Iterator[str]:
    """Yields the library's modules that a file imports, including imports in functions."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test) and not typing:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)
        elif isinstance(node, ast.ImportFrom) and node.module in known:
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                yield full if full in known else node.module
        else:
            yield from imported(node, known, typing)


def room_of(module: str) -> str:
    return module.split(".")[1] if "." in module else ""


def cycles(edges: dict[str, set[str]]) -> list[list[str]]:
    """Returns the groups of modules that import each other in a cycle."""
    reached: dict[str, set[str]] = {}
    for start in edges:
        seen: set[str] = set()
        todo = [start]
        while todo:
            for after in edges.get(todo.pop(), ()):
                if after not in seen:
                    seen.add(after)
                    todo.append(after)
        reached[start] = seen
    groups = {
        tuple(sorted(b for b in reached[a] if a in reached.get(b, ())))
        for a in edges
        if a in reached[a]
    }
    return [list(group) for group in sorted(groups)]


@pytest.fixture(scope="module")
def library(root: Path) -> dict[str, set[str]]:
    """Maps each module of the library to the library's modules that it imports."""
    known = modules(root)
    return {
        name: set(imported(ast.parse(path.read_text("utf-8")), known)) - {name}
        for name, path in known.items()
    }


def test_each_package_knows_only_the_floors_below(library: dict[str, set[str]]):
    upward = [
        f"{module} imports {used}"
        for module, found in sorted(library.items())
        for used in sorted(found)
        if not may_use(LIBRARY, room_of(module), room_of(used))
    ]
    assert upward == []


def test_no_modules_import_each_other(library: dict[str, set[str]]):
    assert cycles(library) == []


def test_a_cycle_and_an_upward_import_are_noticed():
    assert cycles({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}) == [["a", "b", "c"]]
    assert cycles({"a": {"b"}, "b": set()}) == []
    assert not may_use(LIBRARY, "tables", "variable")
    assert not may_use(LIBRARY, "lookup", "exports")
    assert may_use(LIBRARY, "variable", "tables")


@pytest.mark.parametrize(("layer", "floors"), [("engine", ENGINE), ("kernels", KERNELS)])
def test_each_folder_of_cpp_knows_only_the_floors_below(
    root: Path, layer: str, floors: tuple[tuple[str, ...], ...]
):
    folder = root / "de_core/cc" / layer
    include = re.compile(rf'#include "de_core/cc/{layer}/([^"]+)"')
    files = [path for path in folder.rglob("*.*") if path.suffix in (".cc", ".h", ".inc")]
    assert len(files) > 30
    wrong = []
    for path in sorted(files):
        room = path.relative_to(folder).parts[0]
        for used in include.findall(path.read_text("utf-8")):
            if not may_use(floors, room, used.partition("/")[0]):
                wrong.append(f"{path.relative_to(folder)} includes {used}")
    assert wrong == []


def test_ops_and_saves_know_only_the_interface_of_a_table(root: Path):
    include = '#include "de_core/cc/engine/table/'
    save = root / "de_core/cc/engine/save"
    files = [*(root / "de_core/cc/kernels").rglob("*.*"), *save.glob("*")]
    concrete = sorted(path.name for path in files if include in path.read_text("utf-8"))
    assert concrete == ["create_kernels.cc", "save_source.h"]
