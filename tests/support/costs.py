"""A pytest plugin: the CPU seconds of each test, and one more try, alone, for a test that failed.

The seconds include processes that a test started and waited for. Fixtures that several tests share
are counted apart: a server that they share is charged to its fixture when it ends.
"""

import collections
import json
import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

SHOWN = 20
#: A test that fails by these markers found a failing seed: to run it again would hide it.
SEEDED = ("hypothesis", "seeded")
MOST_RERUNS = 10
#: Set in processes that a run starts. A pytest among them neither reports nor runs tests again.
INSIDE = "DE_INSIDE_TESTS"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declares the limits, in CPU seconds of one test."""
    parser.addini("named_cpu_seconds", "name an unmarked test above this", default="10")
    parser.addini("most_cpu_seconds", "fail the run if an unmarked test is above", default="30")


def pytest_configure(config: pytest.Config) -> None:
    """Installs the meter where tests run, and the report in the process that the user started."""
    is_worker = hasattr(config, "workerinput")
    is_outermost = not is_worker and INSIDE not in os.environ
    if is_worker or (is_outermost and not config.getoption("numprocesses", None)):
        config.pluginmanager.register(_Meter())
    if is_outermost:
        config.pluginmanager.register(_Report(config))
    os.environ[INSIDE] = "1"


#: CPU seconds of ended processes whose parent is a child of this process, and still runs.
elsewhere = 0.0


def cpu_seconds() -> float:
    """Returns the CPU seconds of this process and of its ended children."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return elsewhere + sum(each.ru_utime + each.ru_stime for each in used)


class _Meter:
    """Attaches the seconds to each test's last report."""

    def __init__(self) -> None:
        self._fixtures: collections.Counter[str] = collections.Counter()
        self._test_start = 0.0

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self) -> Iterator[None]:
        self._fixtures.clear()
        self._test_start = cpu_seconds()
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef) -> Iterator[None]:
        if fixturedef.scope == "function":
            return (yield)
        name = f"{fixturedef.baseid}::{fixturedef.argname}"
        begin: list[tuple[float, float]] = [self._now()]
        # Finalizers run in reverse order, so these two enclose the fixture's own end.
        fixturedef.addfinalizer(lambda: self._charge(name, *begin.pop()))
        result = yield
        self._charge(name, *begin.pop())
        fixturedef.addfinalizer(lambda: begin.append(self._now()))
        return result

    def _now(self) -> tuple[float, float]:
        return cpu_seconds(), self._fixtures.total()

    def _charge(self, name: str, begin: float, charged: float) -> None:
        """Charges a fixture with the seconds since `begin`, less the seconds of other fixtures."""
        seconds, now_charged = self._now()
        self._fixtures[name] += (seconds - begin) - (now_charged - charged)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo) -> Iterator[None]:
        if call.when == "teardown":
            seconds = cpu_seconds() - self._test_start - self._fixtures.total()
            item.user_properties.append(("cpu_seconds", seconds))
            item.user_properties.append(("fixture_cpu_seconds", dict(self._fixtures)))
        return (yield)


class _Report:
    """Prints the seconds, and runs failed tests once more."""

    def __init__(self, config: pytest.Config) -> None:
        self._root = config.rootpath
        self._named = float(config.getini("named_cpu_seconds"))
        self._most = float(config.getini("most_cpu_seconds"))
        self._tests: collections.Counter[str] = collections.Counter()
        self._fixtures: collections.Counter[str] = collections.Counter()
        self._marked: set[str] = set()
        self._failed: dict[str, bool] = {}  # true if a failing seed was found
        self._unsteady: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._failed[report.nodeid] = any(each in report.keywords for each in SEEDED)
        if report.when == "teardown":
            costs = dict(report.user_properties)
            self._tests[report.nodeid] = costs["cpu_seconds"]
            self._fixtures.update(costs["fixture_cpu_seconds"])
            if "slow" in report.keywords or "quiet" in report.keywords:
                self._marked.add(report.nodeid)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if session.exitstatus == pytest.ExitCode.TESTS_FAILED and not session.shouldstop:
            again = list(self._failed)
            if len(again) <= MOST_RERUNS and not any(self._failed.values()):
                self._unsteady = [each for each in again if self._passes_alone(each)]
                if self._unsteady == again:
                    session.exitstatus = pytest.ExitCode.OK
        if session.exitstatus == pytest.ExitCode.OK and self._above(self._most):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
        if path := os.environ.get("DE_TEST_COSTS"):
            costs = {"tests": self._tests, "fixtures": self._fixtures}
            Path(path).write_text(json.dumps(costs, indent=0), "utf-8")

    def _passes_alone(self, nodeid: str) -> bool:
        command = [sys.executable, "-m", "pytest", "-p", "no:xdist", "-q", nodeid]
        return subprocess.run(command, cwd=self._root, check=False).returncode == 0

    def _above(self, seconds: float) -> list[str]:
        return [each for each, s in self._tests.items() if s > seconds and each not in self._marked]

    def pytest_terminal_summary(self, terminalreporter: "pytest.TerminalReporter") -> None:
        write, everything = terminalreporter.write_line, cpu_seconds()
        tests, fixtures = self._tests.total(), self._fixtures.total()
        terminalreporter.section("CPU seconds")
        write(f"{everything:7.1f} in all")
        write(f"{tests:7.1f} tests")
        write(f"{fixtures:7.1f} shared fixtures")
        write(f"{everything - tests - fixtures:7.1f} imports and collection, per process")
        spent = self._tests + collections.Counter(
            {f"fixture {name}": seconds for name, seconds in self._fixtures.items()}
        )
        write(f"The dearest {SHOWN}:")
        for name, seconds in spent.most_common(SHOWN):
            write(f"{seconds:7.1f} {name}")
        for name in self._above(self._named):
            write(f"above {self._named:g} s, mark it slow or make it cheaper: {name}", yellow=True)
        for name in self._above(self._most):
            write(f"FAILED, above {self._most:g} s: {name}", red=True)
        for name in self._unsteady:
            write(f"UNSTEADY, failed and then passed alone: {name}", red=True)
