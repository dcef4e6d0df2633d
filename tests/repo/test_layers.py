"""Each layer imports only the layers below it."""

import re
import sys
from pathlib import Path

import pytest

from tests.repo.imports import imports, imports_below

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
LAZY_ROOMS = ("server/engines/embedded", "server/protos")


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


def is_of(module: str, packages: tuple[str, ...]) -> bool:
    return module.split(".")[0] in packages


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


PRIVATE = ("tensorflow.python.", "keras.src.", "tensorflow.keras.")
BESIDE_THE_LIBRARY = ("de_core_cli", "server", "examples", "bench", "tests", "scripts")
OF_THE_COMMAND = (*sys.stdlib_module_names, "de_core_cli")
#: For each rule: the folders, and whether a file's import of a module breaks it.
RULES = {
    "nothing imports private tensorflow": (
        ("de_core", "de_core_cli", "server", "examples", "tests"),
        lambda _file, module, _when: f"{module}.".startswith(PRIVATE),
    ),
    "library imports neither gateway nor examples": (
        ("de_core",),
        lambda _file, module, _when: is_of(module, BESIDE_THE_LIBRARY),
    ),
    "the command imports only the standard library at once": (
        ("de_core_cli",),
        lambda _file, module, when: when == "at once" and not is_of(module, OF_THE_COMMAND),
    ),
    "gateway imports tensorflow only in its engines and lazily": (
        ("server",),
        lambda file, module, when: (
            is_of(module, FOREIGN_TO_THE_GATEWAY)
            and (when == "at once" or not file.startswith(LAZY_ROOMS))
        ),
    ),
}


@pytest.mark.parametrize("rule", RULES)
def test_no_import_breaks_a_rule(root: Path, rule: str):
    folders, breaks = RULES[rule]
    every = imports_below(root, *folders)
    assert [(file, module) for file, _, module, when in every if breaks(file, module, when)] == []


def test_the_gateway_imports_its_own_modules_relatively(root: Path):
    """Its package has another name where it is installed."""
    found = [
        f"{path.name}: {each[0]}"
        for path in sorted((root / "server").rglob("*.py"))
        for each in imports(path.read_text("utf-8"))
        if is_of(each[0], ("server", "de_core_gateway"))
    ]
    assert found == []


def test_a_lazy_import_is_told_from_one_at_module_level():
    text = "import a.b\nif TYPE_CHECKING:\n    import c\ndef f():\n    from d import e\n"
    assert imports(text) == [("a.b", "at once"), ("c", "for types"), ("d.e", "in a function")]
