"""`doctor.py` reports a machine's problems before anything is installed."""

import ast
import stat
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import doctor
import environment
import pytest

from tests.support.commands import run

TOOLS = ("redis-server", "redis-cli", "chromium", "promtool")


@pytest.fixture
def found(root: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    """Returns the problems of a machine that lacks nothing but what is named."""

    def found(
        python: tuple[int, int] = (3, 11),
        platform: str = "linux",
        programs: tuple[str, ...] = ("c++", *TOOLS),
        ensurepip: bool = True,
        works: bool = True,
        free_gib: float = 4.0,
        environment_exists: bool = False,
    ) -> list[str]:
        monkeypatch.delenv("CXX", raising=False)
        monkeypatch.setattr(doctor.sys, "version_info", (*python, 0))
        monkeypatch.setattr(doctor.sys, "platform", platform)
        monkeypatch.setattr(doctor.shutil, "which", lambda name: name if name in programs else None)
        usage = SimpleNamespace(free=free_gib * doctor.GIB)
        monkeypatch.setattr(doctor.shutil, "disk_usage", lambda _: usage)
        monkeypatch.setattr(doctor.importlib.util, "find_spec", lambda _: ensurepip or None)
        monkeypatch.setattr(doctor, "_runs", lambda command: works or "-c" in command)
        return doctor.diagnose(root, environment_exists, tests=True)

    return found


@pytest.mark.parametrize(
    "machine",
    [
        {"python": (3, 10)},
        {"python": (3, 13)},
        {"free_gib": 0.0, "environment_exists": True},
    ],
)
def test_a_machine_that_lacks_nothing_has_no_problem(found, machine):
    assert found(**machine) == []


@pytest.mark.parametrize(
    ("machine", "parts"),
    [
        ({"platform": "darwin"}, ["platform=darwin"]),
        (
            {"python": (3, 14), "programs": ("c++", "python3.12", *TOOLS)},
            ["Received: python=3.14", "PYTHON=python3.12"],
        ),
        ({"python": (3, 9)}, ["Received: python=3.9", "apt-get install python3"]),
        ({"ensurepip": False}, ["apt-get install python3.11-venv"]),
        ({"programs": TOOLS}, ["no c++, g++, clang++ on PATH", "apt-get install g++"]),
        ({"works": False}, ["c++, which cannot compile"]),
        (
            {"programs": ("c++", "redis-server", "chromium-browser")},
            ["no redis-cli, promtool on PATH", "apt-get install redis-tools prometheus"],
        ),
    ],
)
def test_a_problem_is_named_with_its_remedy(found, machine, parts):
    [message] = found(**machine)
    assert [part for part in parts if part not in message] == []


def test_a_full_disk_is_named_with_folder_and_need(found, root: Path):
    project, temporary = found(free_gib=1.25)
    assert project.startswith(f"4.0 GB of free disk are needed in {root}. Received: 1.2 GB")
    assert "1.5 GB" in temporary


def test_several_missing_packages_end_in_one_command(found):
    *_, last = found(ensurepip=False, programs=())
    packages = "python3.11-venv g++ redis-server redis-tools chromium prometheus"
    assert last == f"All together: apt-get install {packages}"


def test_compiler_is_judged_by_what_it_does(tmp_path: Path):
    fake = tmp_path / "c++"
    fake.write_text("#!/bin/sh\nexit 1\n", encoding="utf-8")
    fake.chmod(fake.stat().st_mode | stat.S_IXUSR)
    assert not doctor.compiler_works(str(fake))
    assert not doctor.compiler_works(str(tmp_path / "absent"))


def test_machine_without_a_compiler_is_stopped_before_anything_is_made(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.delenv("CXX", raising=False)
    venv = tmp_path / "venv"
    command = [sys.executable, root / "scripts/environment.py", "--venv", venv, "--tests"]
    done = run(*command, PATH=str(tmp_path))
    assert done.returncode == 1
    assert "A C++17 compiler is needed" in done.stderr
    packages = "g++ redis-server redis-tools chromium prometheus"
    assert done.stderr.endswith(f"All together: apt-get install {packages}\n")
    assert "Traceback" not in done.stderr
    assert not venv.exists()


@pytest.mark.parametrize("name", ["doctor.py", "environment.py"])
def test_scripts_parse_under_an_old_python(root: Path, name: str):
    text = (root / "scripts" / name).read_text("utf-8")
    ast.parse(text, feature_version=(3, 7))
    assert "from __future__ import annotations" not in text


@pytest.mark.parametrize(
    ("log", "sentence"),
    [
        ("OSError: [Errno 28] No space left on device", "disk became full"),
        ("ERROR: No matching distribution found for tensorflow==2.21.*", "found no fitting"),
        ("ConnectionResetError while reading", "could not reach"),
        ("*** The ops did not compile.", "ops did not compile"),
        ("anything else", "installation failed"),
    ],
)
def test_failed_installation_is_explained(log: str, sentence: str, tmp_path: Path):
    message = environment.explain(log, tmp_path / "install.log")
    assert sentence in message
    assert "\n" not in message


def test_first_errors_of_a_failed_compilation_are_shown():
    log = "2026-01-02T03:04:05,678   a.cc:1:2: error: no type x\n2026-01-02T03:04:05,679   ok\n"
    assert environment.errors(log) == ["a.cc:1:2: error: no type x"]
    log = 'FAILED: [code=1] _de_ops.so\ncmake -E copy a b\nError copying file "a" to "b": no space'
    assert environment.errors(log) == [log.splitlines()[0], log.splitlines()[2]]
    assert environment.errors("ValueError: wrong\nno error\n") == ["ValueError: wrong"]
    assert len(environment.errors("x: error: y\n" * 99, most=5)) == 5


def test_changed_source_changes_the_fingerprint(monkeypatch, tmp_path: Path):
    monkeypatch.setattr(environment, "ROOT", tmp_path)
    file = tmp_path / "a.cc"
    file.write_text("int a;", encoding="utf-8")
    before = environment.digest([file])
    assert environment.digest([file]) == before
    file.write_text("int b;", encoding="utf-8")
    assert environment.digest([file]) != before


def test_library_sources_are_watched(root: Path):
    watched = set(environment.source_files())
    assert {p for p in (root / "de_core/cc").rglob("*.cc") if p.parent.name != "testing"} <= watched
    assert root / "de_core/CMakeLists.txt" in watched
