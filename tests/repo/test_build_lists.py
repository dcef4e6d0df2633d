"""The build compiles every source file and packages the right files."""

import re
from pathlib import Path

try:
    import tomllib
except ModuleNotFoundError:  # Python 3.10 has no tomllib; pytest installs tomli there
    import tomli as tomllib

import pytest

GLOB = re.compile(r"file\(GLOB(_RECURSE)? (\w+) CONFIGURE_DEPENDS ([^)]+)\)")
CODE = ("engine", "kernels", "ops", "tfra")


def globbed(cmake: Path) -> dict[str, set[Path]]:
    """Returns the files of each glob variable in one CMakeLists.txt."""
    found = {}
    text = cmake.read_text("utf-8").replace("${DE_CORE}", "../../de_core").replace('"', "")
    for recurse, variable, patterns in GLOB.findall(text):
        if "$" in patterns:
            continue
        parts = [pattern.rpartition("/") for pattern in patterns.split()]
        found[variable] = {
            path
            for folder, _, name in parts
            for path in (cmake.parent / folder).glob(f"**/{name}" if recurse else name)
        }
    return found


@pytest.fixture(scope="module")
def project(root: Path) -> dict:
    return tomllib.loads((root / "pyproject.toml").read_text("utf-8"))


def test_cmake_compiles_every_source_of_the_library(root: Path):
    lists = globbed(root / "de_core/CMakeLists.txt")
    libraries = [lists[name] for name in ("DE_ENGINE_SOURCES", "DE_OP_SOURCES", "DE_TFRA_SOURCES")]
    compiled = set().union(*libraries)
    assert compiled == {p for name in CODE for p in (root / "de_core/cc" / name).rglob("*.cc")}
    assert len(compiled) == sum(map(len, libraries))


def test_the_loader_of_model_servers_compiles_every_source(root: Path):
    lists = globbed(root / "serving_ops/loader/CMakeLists.txt")
    compiled = {path.resolve() for path in lists["DE_ENGINE_SOURCES"] | lists["DE_SOURCES"]}
    assert compiled == {p for name in CODE for p in (root / "de_core/cc" / name).rglob("*.cc")}


def test_cmake_builds_every_test_of_the_engine(root: Path):
    folder = root / "de_core/cc/testing"
    lists = globbed(folder / "CMakeLists.txt")
    built = set().union(*lists.values())
    programs = {p.stem for p in built if p.stem.endswith(("_bench", "_fuzz"))}
    parts = {p for name in programs for p in folder.rglob(f"{name}_*.cc")}
    text = (folder / "CMakeLists.txt").read_text("utf-8")
    named = {folder / name for name in re.findall(r"SOURCE_DIR}/([\w/]+\.cc)", text)}
    assert built | parts | named == set(folder.rglob("*.cc"))


def test_cpp_lives_in_known_folders_only(root: Path):
    known = {*CODE, "testing", "portable"}
    found = {p.relative_to(root / "de_core/cc").parts[0] for p in root.glob("de_core/cc/**/*.cc")}
    assert found <= known


def test_every_supported_python_is_declared_alike(project: dict, compat):
    import doctor

    oldest, newest = compat.OLDEST_PYTHON, compat.NEWEST_PYTHON
    assert (oldest, newest) == (doctor.OLDEST, doctor.NEWEST)
    declared = project["project"]["requires-python"]
    assert declared == f">=3.{oldest[1]},<3.{newest[1] + 1}"
    classifiers = {c for c in project["project"]["classifiers"] if "Python :: 3." in c}
    minors = range(oldest[1], newest[1] + 1)
    assert classifiers == {f"Programming Language :: Python :: 3.{m}" for m in minors}


def test_pytest_is_strict(project: dict):
    options = project["tool"]["pytest"]["ini_options"]
    assert {"--strict-markers", "--strict-config"} <= set(options["addopts"])
    assert options["xfail_strict"] is True
    assert options["filterwarnings"][0] == "error"


def test_continuous_integration_runs_the_command_of_the_readme(root: Path):
    script = root / ".ci" / "run"
    lines = [line.strip() for line in script.read_text("utf-8").splitlines()]
    assert script.stat().st_mode & 0o111
    assert lines[0].endswith("bash")
    assert "set -euo pipefail" in lines
    assert "make test" in lines


@pytest.mark.parametrize("file", [".ci/run", "Dockerfile"])
def test_integration_and_image_install_the_programs_of_the_tests(root: Path, file: str):
    import doctor

    words = (root / file).read_text("utf-8").replace(";", " ").split()
    packages = {package for _, package in doctor.TEST_TOOLS}
    assert {"g++", "libgtest-dev", *packages} <= set(words)


def test_missing_googletest_is_a_failure_with_one_command(root: Path, tmp_path: Path):
    """CMake's real message for a failed download, as engine_tests.py finds it."""
    import engine_tests

    source = tmp_path / "CMakeLists.txt"
    text = (root / "de_core/cc/testing/CMakeLists.txt").read_text("utf-8")
    block = text[: text.index("# Ends a test that hangs")]
    source.write_text(f"cmake_minimum_required(VERSION 3.20)\nproject(x NONE)\n{block}", "utf-8")
    configure = ["cmake", "-S", str(tmp_path), "-B", str(tmp_path / "build")]
    configure += ["-DCMAKE_DISABLE_FIND_PACKAGE_GTest=ON", "-DDE_GTEST_SOURCE=/nowhere"]
    done = engine_tests.run([*configure, "-DDE_GTEST_URL=file:///nowhere/googletest.tar.gz"])
    assert done.returncode != 0
    assert "apt-get install libgtest-dev" in engine_tests.explain(configure, done.stdout)
