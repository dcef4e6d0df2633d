"""`doctor.py` reports a machine's problems before anything is installed."""

from __future__ import annotations

import ast
import os
import stat
import subprocess
import sys
from pathlib import Path

import doctor
import environment
import pytest


@pytest.mark.parametrize("version", [(3, 10), (3, 13)])
def test_supported_python_is_no_problem(version: tuple[int, int]):
    assert doctor.python_problem(version, {}) is None


def test_unsupported_python_names_another_one_that_is_there():
    message = doctor.python_problem((3, 14), {"python3.12": "/usr/bin/python3.12"})
    assert "Received: python=3.14" in message
    assert "PYTHON=python3.12" in message


def test_unsupported_python_alone_names_how_to_install_one():
    assert "apt-get install python3" in doctor.python_problem((3, 9), {})


def test_missing_venv_module_names_the_debian_package():
    assert doctor.venv_problem(has_ensurepip=True) is None
    assert "-venv" in doctor.venv_problem(has_ensurepip=False)


def test_missing_compiler_names_the_package():
    message = doctor.compiler_problem(None, works=False)
    assert "no c++, g++, clang++ on PATH" in message
    assert "apt-get install g++" in message


def test_compiler_that_cannot_do_cpp17_is_named():
    assert "c++, which cannot" in doctor.compiler_problem("c++", works=False)
    assert doctor.compiler_problem("c++", works=True) is None


def test_compiler_is_judged_by_what_it_does(tmp_path: Path):
    fake = tmp_path / "c++"
    fake.write_text("#!/bin/sh\nexit 1\n", encoding="utf-8")
    fake.chmod(fake.stat().st_mode | stat.S_IXUSR)
    assert not doctor.compiler_works(str(fake))
    assert not doctor.compiler_works(str(tmp_path / "absent"))


def test_missing_programs_of_the_tests_are_named_with_their_packages():
    message = doctor.tools_problem([(("promtool",), "prometheus"), (("a", "b"), "c")])
    assert "no promtool, a on PATH" in message
    assert "apt-get install prometheus c" in message
    assert doctor.tools_problem([]) is None


def test_several_missing_packages_end_in_one_command():
    problems = [
        doctor.venv_problem(has_ensurepip=False),
        doctor.compiler_problem(None, works=False),
        doctor.tools_problem([(("chromium",), "chromium"), (("promtool",), "prometheus")]),
        doctor.disk_problem("/home/ann", free_gib=1.25, needed_gib=4.0),
    ]
    package = f"python{sys.version_info[0]}.{sys.version_info[1]}-venv"
    *same, last = doctor.together(problems)
    assert same == problems
    assert last == f"All together: apt-get install {package} g++ chromium prometheus"
    assert doctor.together(problems[:1]) == problems[:1]


def test_full_disk_names_folder_and_need():
    message = doctor.disk_problem("/home/ann", free_gib=1.25, needed_gib=4.0)
    assert "4.0 GB" in message
    assert "/home/ann" in message
    assert "1.2 GB" in message
    assert doctor.disk_problem("/home/ann", free_gib=4.0, needed_gib=4.0) is None


def test_other_systems_are_named():
    assert doctor.platform_problem("linux") is None
    assert "platform=darwin" in doctor.platform_problem("darwin")


def test_machine_without_a_compiler_is_stopped_before_anything_is_made(root: Path, tmp_path: Path):
    venv = tmp_path / "venv"
    variables = {**os.environ, "PATH": str(tmp_path)}
    variables.pop("CXX", None)
    command = [sys.executable, str(root / "scripts/environment.py"), "--venv", str(venv), "--tests"]
    done = subprocess.run(
        command,
        env=variables,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
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
