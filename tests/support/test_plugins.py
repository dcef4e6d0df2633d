"""The plugins `costs`, `applies` and `choices`, in runs of small tests."""

import json
import sys
import textwrap

import pytest

from tests.support import commands
from tests.support.costs import INSIDE

INI = """
[pytest]
markers =
    slow: left out
    seeded: draws by its own seed
    hypothesis: set by hypothesis
"""
WORKER = ("-p", "xdist", "-n1")
BOTH = [(), pytest.param(WORKER, marks=pytest.mark.slow)]
BURN = """
import sys
import time

import pytest


def burn(seconds):
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass
"""


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Runs pytest on one file; returns its status, output and measured seconds."""

    def run(source, *options):
        (tmp_path / "pytest.ini").write_text(INI)
        (tmp_path / "test_small.py").write_text(BURN + textwrap.dedent(source))
        costs = tmp_path / "costs.json"
        monkeypatch.delenv(INSIDE, raising=False)
        environment = {"PYTHONPATH": str(commands.ROOT), "DE_TEST_COSTS": str(costs)}
        environment["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # importing them takes seconds
        plugins = [f"-ptests.support.{name}" for name in ("costs", "applies", "choices")]
        pytest_command = [sys.executable, "-m", "pytest", *plugins, *options]
        done = commands.run(*pytest_command, cwd=tmp_path, **environment)
        return done.returncode, done.stdout + done.stderr, json.loads(costs.read_text())

    return run


@pytest.mark.slow
@pytest.mark.parametrize("options", [(), WORKER])
def test_seconds_of_tests_processes_and_shared_fixtures_are_told_apart(run, options):
    status, output, costs = run(
        """
        import subprocess

        @pytest.fixture(scope="module")
        def inner():
            burn(0.3)
            yield
            burn(0.3)

        @pytest.fixture(scope="module")
        def outer(inner):
            burn(0.2)

        @pytest.fixture
        def own():
            burn(0.2)

        def test_first(outer, own):
            pass

        def test_second(outer):
            burn(0.3)

        def test_a_process():
            code = "import time\\nwhile time.process_time() < 0.4: pass"
            subprocess.run([sys.executable, "-c", code], check=True)
        """,
        *options,
    )
    assert status == 0, output
    tests = {name.rpartition(":")[2]: seconds for name, seconds in costs["tests"].items()}
    fixtures = {name.rpartition(":")[2]: seconds for name, seconds in costs["fixtures"].items()}
    # A wrongly charged fixture would exceed the upper bounds.
    assert 0.2 <= tests["test_first"] < 0.5
    assert 0.3 <= tests["test_second"] < 0.5
    assert 0.4 <= tests["test_a_process"] < 1
    assert 0.6 <= fixtures["inner"] < 0.8
    assert 0.2 <= fixtures["outer"] < 0.45
    assert "imports and collection" in output


def test_a_dear_test_without_a_mark_fails_the_run(run):
    source = """
        def test_cheap():
            pass

        def test_named():
            burn(0.2)

        @pytest.mark.slow
        def test_marked():
            burn(0.5)
    """
    limits = "-o", "named_cpu_seconds=0.1", "-o"
    status, output, _ = run(source, *limits, "most_cpu_seconds=10")
    assert status == 0, output
    assert output.count("mark it slow or make it cheaper: ") == 1
    assert "cheaper: test_small.py::test_named" in output
    assert "FAILED, above" not in output
    status, output, _ = run(source, *limits, "most_cpu_seconds=0.15")
    assert status == 1
    assert "FAILED, above 0.15 s: test_small.py::test_named" in output


FAILS_ONCE = """
        from pathlib import Path

        @pytest.mark.parametrize("name", ["with spaces"])
        def test_unsteady(name):
            tries = Path("tries")
            tries.write_text(tries.read_text() + "I" if tries.exists() else "I")
            assert len(tries.read_text()) > 1
"""
UNSTEADY = "UNSTEADY, failed and then passed alone: test_small.py::test_unsteady[with spaces]"


@pytest.mark.parametrize("options", BOTH)
def test_a_failed_test_that_passes_alone_is_named_and_the_run_is_green(run, options):
    status, output, _ = run(FAILS_ONCE, *options)
    assert status == 0, output
    assert UNSTEADY in output


def test_a_test_that_fails_twice_fails_the_run(run, tmp_path):
    wrong = """
        from tests.support.applies import program

        def test_wrong():
            with Path("wrong").open("a") as file:
                file.write("I")
            program("no-such-program", "its-package")
    """
    status, output, _ = run(FAILS_ONCE + wrong)
    assert status == 1
    assert UNSTEADY in output
    assert "alone: test_small.py::test_wrong" not in output
    assert (tmp_path / "wrong").read_text() == "II"
    assert "needs the program no-such-program. Run: apt-get install its-package" in output


@pytest.mark.parametrize("marker", ["seeded", "hypothesis"])
def test_a_failing_seed_is_not_tried_again(run, tmp_path, marker):
    status, output, _ = run(
        FAILS_ONCE.replace("parametrize", f"{marker}\n        @pytest.mark.parametrize")
    )
    assert status == 1
    assert (tmp_path / "tries").read_text() == "I"
    assert "UNSTEADY" not in output


@pytest.mark.parametrize("options", BOTH)
def test_tests_that_do_not_apply_are_counted_by_reason(run, options):
    status, output, costs = run(
        """
        from tests.support.applies import applies_if

        @applies_if(True, "Linux")
        def test_runs():
            pass

        @applies_if(False, "a vector unit")
        @pytest.mark.parametrize("number", range(3))
        def test_does_not(number):
            raise AssertionError

        @pytest.mark.parametrize("name", [pytest.param(1, marks=applies_if(False, "a disk")), 2])
        def test_half(name):
            assert name == 2

        @pytest.mark.slow
        @applies_if(False, "a vector unit")
        def test_not_chosen():
            raise AssertionError
        """,
        "-m",
        "not slow",
        *options,
    )
    assert status == 0, output
    assert len(costs["tests"]) == 2
    assert "left out here: 3 that need a vector unit" in output
    assert "left out here: 1 that need a disk" in output


@pytest.mark.parametrize(("options", "number"), [(("-m", "not slow"), 3), ((), 9)])
def test_each_choice_keeps_each_value_of_each_argument(run, options, number):
    status, output, costs = run(
        """
        @pytest.mark.each_choice
        @pytest.mark.parametrize("name", ["a", "b", pytest.param("c", marks=pytest.mark.slow)])
        @pytest.mark.parametrize(("size", "kind"), [(1, "x"), (2, "x"), (3, "y")])
        def test_cases(name, size, kind):
            pass
        """,
        *options,
    )
    assert status == 0, output
    assert len(costs["tests"]) == number
    for value in ("-a]", "-b]", "[1-", "[2-", "[3-"):
        assert any(value in each for each in costs["tests"])
