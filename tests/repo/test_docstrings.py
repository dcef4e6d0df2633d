"""The examples in docstrings run and print the shown output."""

import doctest
import importlib
import inspect
import pkgutil

import pytest

import de_core
import server

# Some modules are no Python, have no functions, or need an extra.
LEFT_OUT = ("de_core._build", "de_core._de_", "server.__main__", "server.observability.tracing")
MODULES = sorted(
    info.name
    for package in (de_core, server)
    for info in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
    if not info.name.startswith(LEFT_OUT)
)


@pytest.mark.parametrize("name", MODULES)
def test_examples(name):
    module = importlib.import_module(name)
    failures, tried = doctest.testmod(module, optionflags=doctest.NORMALIZE_WHITESPACE)
    assert failures == 0
    assert (tried > 0) == (">>>" in inspect.getsource(module))


def test_public_classes_and_functions_have_an_example():
    for name in ("Variable", "get_variable", "embedding_lookup", "export"):
        assert ">>>" in getattr(de_core, name).__doc__
    assert ">>>" in de_core.layers.Embedding.__doc__
    assert ">>>" in de_core.DynamicEmbeddingOptimizer.__doc__
