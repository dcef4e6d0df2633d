"""The examples in docstrings run and print the shown output."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest

import server

MODULES = [
    module.name
    for module in pkgutil.walk_packages(server.__path__, "server.")
    if module.name not in ("server.__main__", "server.observability.tracing")
]


@pytest.mark.parametrize("name", MODULES)
def test_examples_run(name):
    result = doctest.testmod(importlib.import_module(name))
    assert result.failed == 0


def test_there_are_examples():
    finder = doctest.DocTestFinder(exclude_empty=True)
    tests = [t for name in MODULES for t in finder.find(importlib.import_module(name))]
    assert sum(bool(test.examples) for test in tests) >= 3
