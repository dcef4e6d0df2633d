"""A pytest plugin: the CPU seconds of each test, and one more try, alone, for a test that failed.

The seconds include processes that a test started and waited for. Fixtures that several tests share
are counted apart: a server that they share is charged to its fixture when it ends.
"""

from __future__ import annotations

import collections
import json
import os
import resource
import subprocess
import sys
from collections.abc import Iterator

import pytest

NAMED_S, MOST_S = 10.0, 30.0
SHOWN = 20
#: A test that fails by these markers found a failing seed: to run it again would hide it.
SEEDED = ("hypothesis", "seeded")
MOST_RERUNS = 10


def cpu_seconds() -> float:
    """Returns the CPU seconds of this process and of its ended children."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


class Meter:
    """In the process that runs tests: attaches the seconds to each test's last report."""

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
        teardown = []
        # Finalizers run in reverse order, so these two enclose the fixture's own end.
        fixturedef.addfinalizer(lambda: self._charge(name, *teardown))
        charged, start = self._fixtures.total(), cpu_seconds()
        result = yield
        self._charge(name, start, charged)
        fixturedef.addfinalizer(lambda: teardown.extend((cpu_seconds(), self._fixtures.total())))
        return result

    def _charge(self, name: str, start: float, charged: float) -> None:
        inner = self._fixtures.total() - charged
        self._fixtures[name] += cpu_seconds() - start - inner

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo) -> Iterator[None]:
        if call.when == "teardown":
            own = cpu_seconds() - self._test_start - self._fixtures.total()
            item.user_properties.append(("cpu_seconds", own))
            item.user_properties.append(("fixture_cpu_seconds", dict(self._fixtures)))
        return (yield)


class Report:
    """In the process that the user started: prints the seconds, and runs failed tests once more."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._tests: dict[str, float] = {}
        self._fixtures: collections.Counter[str] = collections.Counter()
        self._slow: set[str] = set()
        self._failed: dict[str, bool] = {}
        self._unsteady: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            seeded = any(each in report.keywords for each in SEEDED)
            self._failed[report.nodeid] = self._failed.get(report.nodeid, False) or seeded
        if report.when != "teardown":
            return
        costs = dict(report.user_properties)
        self._tests[report.nodeid] = costs["cpu_seconds"]
        self._fixtures.update(costs["fixture_cpu_seconds"])
        if "slow" in report.keywords or "benchmark" in report.keywords:
            self._slow.add(report.nodeid)

    def above(self, seconds: float) -> list[str]:
        return [each for each, s in self._tests.items() if s > seconds and each not in self._slow]

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if session.exitstatus == pytest.ExitCode.TESTS_FAILED and not session.shouldstop:
            again = list(self._failed)
            if len(again) <= MOST_RERUNS and not any(self._failed.values()):
                self._unsteady = [each for each in again if _passes_alone(each)]
                if self._unsteady == again:
                    session.exitstatus = pytest.ExitCode.OK
        if session.exitstatus == pytest.ExitCode.OK and self.above(MOST_S):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
        if path := os.environ.get("DE_TEST_COSTS"):
            with open(path, "w", encoding="utf-8") as file:
                json.dump({"tests": self._tests, "fixtures": self._fixtures}, file, indent=0)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        write, spent = terminalreporter.write_line, collections.Counter(self._tests)
        shared = sum(self._fixtures.values())
        terminalreporter.section("CPU seconds")
        write(
            f"{cpu_seconds():.0f} in all: {spent.total():.0f} by tests, {shared:.0f} by shared fixtures"
        )
        spent.update({f"fixture {name}": s for name, s in self._fixtures.items()})
        for name, seconds in spent.most_common(SHOWN):
            write(f"{seconds:7.1f} {name}")
        for name in self.above(NAMED_S):
            write(f"above {NAMED_S:.0f} s, mark it slow or make it cheaper: {name}", yellow=True)
        for name in self.above(MOST_S):
            write(f"FAILED, above {MOST_S:.0f} s: {name}", red=True)
        for name in self._unsteady:
            write(f"UNSTEADY, passed alone: {name}", red=True)


def _passes_alone(nodeid: str) -> bool:
    command = [sys.executable, "-m", "pytest", "-p", "no:xdist", "-q", nodeid]
    environment = {**os.environ, "DE_TEST_ALONE": "1"}
    return subprocess.run(command, env=environment, check=False).returncode == 0


def pytest_configure(config: pytest.Config) -> None:
    if os.environ.get("DE_TEST_ALONE"):
        return
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Report(config), "cost-report")
    if hasattr(config, "workerinput") or not config.getoption("numprocesses", None):
        config.pluginmanager.register(Meter(), "cost-meter")
