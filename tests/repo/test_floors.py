"""Packages of the library, and folders of C++ code, import only from lower layers ("floors")."""

import graphlib
import re
from pathlib import Path

import pytest

from tests.repo.imports import imports, imports_below

#: The library's floors, lowest first. "de_core" is `de_core/__init__.py` with the public names,
#: which the parameter server's command imports.
LIBRARY = (
    ("de_core.base",),
    ("de_core.tables",),
    ("de_core.storage", "de_core.distributed", "de_core.snapshot"),
    ("de_core.checkpoint",),
    ("de_core.variable",),
    ("de_core.lookup", "de_core.optimizers", "de_core.exports"),
    ("de_core.layers", "de_core.metrics", "de_core.tfra_files"),
    ("de_core.tfra",),
    ("de_core",),
    ("de_core.parameter_server",),
)
#: The gateway's floors, lowest first.
GATEWAY = (
    ("server",),
    ("server.errors",),
    ("server.settings",),
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


def room_of(floors: tuple[tuple[str, ...], ...], module: str) -> str:
    """Returns the package ("room") of a module; "" outside of `floors`."""
    rooms = {room for floor in floors for room in floor}
    parts = module.split(".")
    for length in range(len(parts), 0, -1):
        room = ".".join(parts[:length])
        # The name of the whole package means only its `__init__.py`, not its modules.
        if room in rooms and (length > 1 or len(parts) == 1):
            return room
    return ""


def upward_imports(
    floors: tuple[tuple[str, ...], ...], module: str, imported: set[str]
) -> list[str]:
    """Returns the modules that `module` imports from other rooms of its floor, or above."""
    own = room_of(floors, module)
    assert own, f"{module} is on no floor: add it to the table of floors"
    rooms = {each: room_of(floors, each) for each in imported}
    return sorted(each for each, used in rooms.items() if used and not may_use(floors, own, used))


@pytest.fixture(scope="module")
def library(root: Path) -> dict[str, set[str]]:
    """Maps each module of the library to the library's modules that it imports to run."""
    every = [each for each in imports_below(root, "de_core") if "/_build/" not in each[0]]
    known = {module for _, module, _, _ in every}
    found: dict[str, set[str]] = {module: set() for module in known}
    for _, module, imported, when in every:
        used = imported if imported in known else imported.rpartition(".")[0]
        if when != "for types" and used in known and used != module:
            found[module].add(used)
    return found


def test_each_package_knows_only_the_floors_below(library: dict[str, set[str]]):
    upward = {module: upward_imports(LIBRARY, module, used) for module, used in library.items()}
    assert {module: found for module, found in upward.items() if found} == {}


def test_each_room_of_the_gateway_knows_only_the_floors_below(root: Path):
    upward = [
        (file, found)
        for file, module, imported, _ in imports_below(root, "server")
        if (found := upward_imports(GATEWAY, module, {imported}))
    ]
    assert upward == []


def test_no_modules_import_each_other(library: dict[str, set[str]]):
    graphlib.TopologicalSorter(library).prepare()  # its error names a cycle


def test_an_upward_import_is_noticed():
    assert not may_use(LIBRARY, "de_core.tables", "de_core.variable")
    assert not may_use(LIBRARY, "de_core.lookup", "de_core.exports")
    assert may_use(LIBRARY, "de_core.variable", "de_core.tables")
    answered = {"server.routers.body.answered"}
    assert upward_imports(GATEWAY, "server.services.lookup", answered) == [*answered]
    assert upward_imports(GATEWAY, "server.grpc.server", answered) == [*answered]
    assert upward_imports(GATEWAY, "server.routers.v1", answered) == []
    relative = "def f():\n    from ..routers import body\n"
    assert imports(relative, "server.services") == [("server.routers.body", "in a function")]


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
