"""Each layer imports only the layers below it."""

from __future__ import annotations

import ast
import importlib.util
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

INCLUDE = re.compile(r'^\s*#\s*include\s+(<[^>]+>|"[^"]+")', re.MULTILINE)
ENGINE = '"de_core/cc/engine/'
KERNELS = '"de_core/cc/kernels/'
OPS = '"de_core/cc/ops/'
# tfra's ops link nothing of the engine: they may include only headers without a source file.
INLINE = ('"de_core/cc/kernels/base/guarded_op.h"', '"de_core/cc/ops/shapes.h"')
TENSORFLOW = ('"tensorflow/', '"absl/', '"tsl/', '"xla/', '"unsupported/')
ALLOWED = {
    "engine": (ENGINE,),
    "kernels": (ENGINE, KERNELS, *TENSORFLOW),
    "ops": (OPS, *TENSORFLOW),
    "tfra": (*INLINE, *TENSORFLOW),
}
#: Headers that only the standard library or the system may have: <vector>, <sys/mman.h>.
SYSTEM_FOLDERS = ("sys", "linux")
FOREIGN_TO_THE_GATEWAY = ("de_core", "tensorflow", "keras", "tensorflow_serving")
LAZY_ROOMS = ("engines/embedded", "protos")
#: The gateway's packages ("rooms") in layers ("floors"), lowest first. A module imports modules of
#: its own room and of lower floors.
SERVER_FLOORS = (
    ("server",),
    ("server.errors", "server.settings"),
    ("server.tensors", "server.request", "server.keys"),
    ("server.limits",),
    ("server.observability", "server.wire"),
    ("server.protos",),
    ("server.engines",),
    ("server.engines.embedded", "server.engines.upstream"),
    ("server.engines.chosen", "server.dependencies"),
    ("server.services",),
    ("server.routers", "server.grpc"),
    ("server.middleware",),
    ("server.app",),
    ("server.admin",),
    ("server.process",),
    ("server.cli",),
    ("server.__main__",),
)


def forbidden_includes(layer: str, text: str) -> list[str]:
    """Returns the includes in ``text`` that ``layer`` must not use."""
    wrong = []
    for include in INCLUDE.findall(text):
        if include.startswith("<"):
            folder, separator, _ = include[1:-1].partition("/")
            if separator and folder not in SYSTEM_FOLDERS:
                wrong.append(include)
        elif not include.startswith(ALLOWED[layer]):
            wrong.append(include)
    return wrong


def imports(
    tree: ast.AST, module_level: bool = True, package: str = ""
) -> Iterator[tuple[str, bool]]:
    """Yields every imported module, and whether it is imported at module level.

    `package` is the package of the tree's module: relative imports start there.
    """
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, module_level) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = "." * node.level + (node.module or "")
            if node.level and package:
                base = importlib.util.resolve_name(base, package)
            yield base, module_level
            yield from ((f"{base}.{alias.name}", module_level) for alias in node.names)
        else:
            yield from imports(node, module_level and not is_deferred(node), package)


def is_deferred(node: ast.AST) -> bool:
    """Returns whether importing the file skips the body of ``node``."""
    if isinstance(node, ast.If):
        return "TYPE_CHECKING" in ast.dump(node.test)
    return isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)


def is_of(module: str, packages: tuple[str, ...]) -> bool:
    return module.split(".")[0] in packages


def room_of(module: str) -> tuple[str, int] | None:
    """Returns a module's room and floor; None for modules outside of the gateway."""
    floors = {room: floor for floor, rooms in enumerate(SERVER_FLOORS) for room in rooms}
    parts = module.split(".")
    for length in range(len(parts), 0, -1):
        room = ".".join(parts[:length])
        # The package's name means only the package itself, not its modules.
        if room in floors and (room != "server" or length == len(parts)):
            return room, floors[room]
    return None


def upward_imports(module: str, text: str, package: str = "") -> list[str]:
    """Returns the modules that ``module`` imports from other rooms of its floor, or above."""
    own = room_of(module)
    assert own is not None, f"{module} has no floor"
    found = []
    for imported, _ in imports(ast.parse(text), package=package):
        room = room_of(imported)
        if room is not None and room[0] != own[0] and room[1] >= own[1]:
            found.append(imported)
    return found


def python_files(root: Path, folder: str) -> list[Path]:
    return sorted((root / folder).rglob("*.py"))


@pytest.mark.parametrize("layer", ALLOWED)
def test_cpp_layer_includes_only_what_it_may_know(root: Path, layer: str):
    files = [p for p in (root / "de_core/cc" / layer).rglob("*") if p.suffix in (".cc", ".h")]
    assert files
    wrong = {p.name: forbidden_includes(layer, p.read_text("utf-8")) for p in files}
    assert {name: found for name, found in wrong.items() if found} == {}


@pytest.mark.parametrize(
    ("layer", "line"),
    [
        ("engine", '#include "tensorflow/core/framework/tensor.h"'),
        ("engine", '#include "absl/status/status.h"'),
        ("engine", "#include <absl/status/status.h>"),
        ("engine", '#include "de_core/cc/kernels/table/table_resource.h"'),
        ("kernels", '#include "de_core/cc/ops/shapes.h"'),
        ("ops", '#include "de_core/cc/kernels/table/table_resource.h"'),
        ("tfra", '#include "de_core/cc/kernels/base/engine_bridge.h"'),
    ],
)
def test_a_forbidden_include_is_noticed(layer: str, line: str):
    assert len(forbidden_includes(layer, f"#include <vector>\n{line}\n")) == 1


def test_engine_never_prints_or_aborts(root: Path):
    banned = re.compile(r"std::(cout|cerr|clog|abort|exit|terminate)\b|\bf?printf\(|\bassert\(")
    found = [
        f"{path.name}:{number}: {line.strip()}"
        for path in sorted((root / "de_core/cc/engine").rglob("*"))
        if path.suffix in (".cc", ".h")
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1)
        if banned.search(line.split("//")[0]) and "static_assert(" not in line
    ]
    assert found == []


def test_nothing_imports_private_tensorflow(root: Path):
    found = [
        f"{path.relative_to(root)}: {module}"
        for folder in ("de_core", "de_core_cli", "server", "examples", "tests")
        for path in python_files(root, folder)
        for module, _ in imports(ast.parse(path.read_text("utf-8")))
        if f"{module}.".startswith(("tensorflow.python.", "keras.src.", "tensorflow.keras."))
    ]
    assert found == []


def test_library_imports_neither_gateway_nor_examples(root: Path):
    found = [
        f"{path.relative_to(root)}: {module}"
        for path in python_files(root, "de_core")
        for module, _ in imports(ast.parse(path.read_text("utf-8")))
        if is_of(module, ("de_core_cli", "server", "examples", "bench", "tests", "scripts"))
    ]
    assert found == []


def test_the_command_imports_only_the_standard_library_at_once(root: Path):
    allowed = (*sys.stdlib_module_names, "de_core_cli")
    found = [
        f"{path.relative_to(root)}: {module}"
        for path in python_files(root, "de_core_cli")
        for module, at_once in imports(ast.parse(path.read_text("utf-8")))
        if at_once and not is_of(module, allowed)
    ]
    assert found == []


def test_gateway_imports_tensorflow_only_in_its_engines_and_lazily(root: Path):
    found = []
    for path in python_files(root, "server"):
        relative = path.relative_to(root / "server")
        may = relative.as_posix().startswith(LAZY_ROOMS)
        for module, at_once in imports(ast.parse(path.read_text("utf-8"))):
            if is_of(module, FOREIGN_TO_THE_GATEWAY) and (at_once or not may):
                found.append(f"{path.relative_to(root)}: {module}")
    assert found == []


def test_each_room_of_the_gateway_knows_only_the_floors_below(root: Path):
    found = {}
    for path in python_files(root, "server"):
        relative = path.relative_to(root).with_suffix("")
        module = ".".join(relative.parts).removesuffix(".__init__")
        package = ".".join(relative.parts[:-1])
        wrong = upward_imports(module, path.read_text("utf-8"), package)
        found |= {module: wrong} if wrong else {}
    assert found == {}


def test_an_upward_import_is_noticed():
    text = "def f():\n    from server.routers.body import answered\n"
    assert upward_imports("server.services.lookup", text) == [
        "server.routers.body",
        "server.routers.body.answered",
    ]
    assert upward_imports("server.routers.v1", text) == []
    assert upward_imports("server.grpc.server", text)
    text = "from ..routers import body\n"
    found = upward_imports("server.services.lookup", text, "server.services")
    assert found == ["server.routers", "server.routers.body"]


def test_the_gateway_imports_its_own_modules_relatively(root: Path):
    """Its package has another name where it is installed."""
    found = [
        f"{path.relative_to(root)}: {module}"
        for path in python_files(root, "server")
        for module, _ in imports(ast.parse(path.read_text("utf-8")))
        if is_of(module, ("server", "de_core_gateway"))
    ]
    assert found == []


def test_a_lazy_import_is_told_from_one_at_module_level():
    text = "import a.b\nif TYPE_CHECKING:\n    import c\ndef f():\n    from d import e\n"
    found = dict(imports(ast.parse(text)))
    assert found == {"a.b": True, "c": False, "d": False, "d.e": False}
