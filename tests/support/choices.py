"""A pytest plugin: of a test with many cases, `make test` runs some, and `make test-all` all.

A test marked `each_choice` keeps enough cases that each value of each argument occurs. Books on
testing call this "each choice coverage". Its other cases become slow tests.
"""

import collections

import pytest


def pytest_configure(config: pytest.Config) -> None:
    """Registers the marker."""
    line = "each_choice: `make test` runs only enough cases for each value of each argument"
    config.addinivalue_line("markers", line)


# First: before `-m` leaves out slow tests.
@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks the cases that are left out as slow."""
    tests: dict[str, list[pytest.Function]] = collections.defaultdict(list)
    for item in items:
        if item.get_closest_marker("each_choice") and not item.get_closest_marker("slow"):
            assert isinstance(item, pytest.Function), item
            tests[item.nodeid.partition("[")[0]].append(item)
    for cases in tests.values():
        chosen = _each_choice([_choices(case) for case in cases])
        for number, case in enumerate(cases):
            if number not in chosen:
                case.add_marker(pytest.mark.slow)


def _choices(case: pytest.Function) -> set[tuple[str, str]]:
    return {(name, repr(value)) for name, value in case.callspec.params.items()}


def _each_choice(cases: list[set[tuple[str, str]]]) -> set[int]:
    """Returns the numbers of cases that have all choices together."""
    chosen: set[int] = set()
    missing: set[tuple[str, str]] = set().union(*cases)
    while missing:
        best = max(range(len(cases)), key=lambda number: len(cases[number] & missing))
        chosen.add(best)
        missing -= cases[best]
    return chosen
