"""A pytest plugin: leaves out tests that do not apply to this machine, and counts them.

A test does not apply if the machine's processor, kernel or rights, or the chosen Keras, lack what
the test is about. A tool that could be installed is no such reason: its test fails without it.
"""

import collections
import shutil

import pytest


def applies_if(condition: bool, reason: str) -> pytest.MarkDecorator:
    """Marks a test that only applies if `condition` holds; `reason` says what it needs."""
    return pytest.mark.applies_if(bool(condition), reason)


def program(name: str, package: str) -> str:
    """Returns the path of an installed program, or fails and names the command to install it."""
    path = shutil.which(name)
    if path is None:
        pytest.fail(f"This test needs the program {name}. Run: apt-get install {package}")
    return path


def pytest_configure(config: pytest.Config) -> None:
    """Registers the marker and the counter."""
    line = "applies_if(condition, reason): leaves the test out, and counts it, unless condition"
    config.addinivalue_line("markers", line)
    config.pluginmanager.register(_Counter(config))


class _Counter:
    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._left_out: dict[str, int] = {}

    # Last: the tests that -k and -m left out are not counted.
    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        reasons = {item: _reason(item) for item in items}
        left_out = [item for item in items if reasons[item]]
        self._left_out = dict(collections.Counter(filter(None, reasons.values())))
        if left_out:
            self._config.hook.pytest_deselected(items=left_out)
            items[:] = [item for item in items if not reasons[item]]

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node) -> None:
        # With -n only the workers collect, each the same tests.
        self._left_out.update(getattr(node, "workeroutput", {}).get("left_out", {}))

    def pytest_sessionfinish(self) -> None:
        if hasattr(self._config, "workeroutput"):
            self._config.workeroutput["left_out"] = self._left_out

    def pytest_terminal_summary(self, terminalreporter: "pytest.TerminalReporter") -> None:
        for reason, count in sorted(self._left_out.items()):
            terminalreporter.write_line(f"left out here: {count} that need {reason}")


def _reason(item: pytest.Item) -> str:
    """Returns the first reason why a test does not apply, or an empty string."""
    marks = (mark.args for mark in item.iter_markers("applies_if"))
    return next((reason for condition, reason in marks if not condition), "")
