"""A folder of sources without compiled ops uses the installed ops, or an error says what to do."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import commands

TRAIN = """
import sys
sys.meta_path[:] = [f for f in sys.meta_path if "ScikitBuild" not in type(f).__name__]
import de_core as de
from de_core.base import environment
table = de.get_variable("t", dim=2, initializer=1.0)
print(de.__file__, environment.library_path(), table.lookup([5]).numpy().tolist())
"""


def run(*command: str, cwd: Path, path: str = "") -> subprocess.CompletedProcess[str]:
    variables = {"PYTHONPATH": path, "TF_CPP_MIN_LOG_LEVEL": "2"}
    return commands.run(sys.executable, *command, cwd=cwd, **variables)


@pytest.fixture
def sources(root: Path, tmp_path: Path) -> Path:
    """A checkout whose ops are not compiled."""
    folder = tmp_path / "check out"
    ignored = shutil.ignore_patterns("_de_ops*", "__pycache__", "testing")
    shutil.copytree(root / "de_core", folder / "de_core", ignore=ignored)
    shutil.copy(root / "pyproject.toml", folder)
    return folder


@pytest.fixture
def installed(root: Path, tmp_path: Path, compat, sources: Path) -> Path:
    """A site-packages folder whose package has compiled ops of the same sources."""
    package = tmp_path / "site" / "de_core"
    package.mkdir(parents=True)
    (package / "_de_ops.so").symlink_to(root / "de_core/_de_ops.so")
    build = compat.read_build(root / "de_core/_de_ops.json")
    build = build._replace(sources=compat.source_digest(sources / "de_core"))
    (package / "_de_ops.json").write_text(json.dumps(build._asdict()))
    return package.parent


@pytest.mark.slow
def test_the_installed_ops_of_the_same_sources_are_used(sources: Path, installed: Path):
    done = run("-c", TRAIN, cwd=sources, path=str(installed))
    assert done.returncode == 0, done.stderr
    library = installed / "de_core/_de_ops.so"
    assert f"{sources}/de_core/__init__.py {library} [[1.0, 1.0]]" in done.stdout


@pytest.mark.slow
def test_the_installed_ops_of_other_sources_are_not_used(sources: Path, installed: Path):
    with (sources / "de_core/cc/engine/table/table.h").open("a") as file:
        file.write("// changed\n")
    done = run("-c", TRAIN, cwd=sources, path=str(installed))
    last = done.stderr.splitlines()[-1]
    assert "compiled ops must lie in" in last
    assert last.endswith(f"Run: pip install --no-deps -e '{sources}'")


@pytest.mark.slow
def test_a_parameter_server_that_cannot_start_ends_the_cluster(root: Path, sources: Path):
    with (sources / "de_core/cc/engine/table/table.h").open("a") as file:
        file.write("// changed\n")  # so that installed ops are not used
    path = sources / "path"
    path.mkdir()
    without_editable = "import sys\n" + TRAIN.strip().splitlines()[1]
    (path / "sitecustomize.py").write_text(without_editable)  # for the servers' processes
    train = str(root / "examples/cluster/train.py")
    code = "import runpy, sys; sys.path.pop(0); sys.path.append({!r}); import de_core\n"
    code += "sys.argv = ['train.py', '--servers', '1']; runpy.run_path({!r}, run_name='__main__')"
    done = run("-c", code.format(str(root), train), cwd=sources, path=str(path))
    assert done.returncode == 1, done.stderr
    assert "compiled ops must lie in" in done.stderr
    assert "ended with status 1. Read its message above." in done.stderr.splitlines()[-1]


def test_a_package_with_several_libraries_uses_the_one_for_this_tensorflow(compat, tmp_path: Path):
    for minor in ("2.19", "2.20", "2.21"):
        folder = tmp_path / "_ops" / minor
        folder.mkdir(parents=True)
        (folder / "_de_ops.so").touch()
        build = compat.Build(f"{minor}.0", "tensorflow", "GNU")
        (folder / "_de_ops.json").write_text(json.dumps(build._asdict()))
    found = compat.libraries(tmp_path)
    assert [path.parent.name for path in found] == ["2.19", "2.20", "2.21"]
    assert compat.best(found, ["2.20.1"]).parent.name == "2.20"
    assert compat.best(found, ["2.21.0"]).parent.name == "2.21"
    assert compat.best(found, ["2.18.0"]).parent.name == "2.21"  # none fits; the check reports it
    assert compat.best(found, []).parent.name == "2.21"
    assert compat.best([], ["2.21.0"]) is None
