"""Importing the gateway imports no TensorFlow and no op library, and has no side effects."""

import sys

from tests.server.support.gateway_process import ROOT, run


def test_importing_every_module_imports_neither_tensorflow_nor_the_op_library():
    program = """
import importlib, pkgutil, sys, threading
import server
for module in pkgutil.walk_packages(server.__path__, "server."):
    # Tracing is an extra: its packages need not be there. The gRPC port loads grpc.
    unloaded = ("server.__main__", "server.observability.tracing", "server.grpc.")
    if not module.name.startswith(unloaded):
        importlib.import_module(module.name)
heavy = {"tensorflow", "de_core", "grpc", "keras"} & sys.modules.keys()
assert not heavy, heavy
assert threading.active_count() == 1
"""
    run(sys.executable, "-W", "error", "-c", program)


def test_the_core_knows_no_http():
    for folder in ("wire", "protos", "engines", "services"):
        for file in (ROOT / "server" / folder).rglob("*.py"):
            text = file.read_text()
            for library in ("fastapi", "starlette", "uvicorn", "routers", "server.grpc"):
                assert library not in text, f"{file} knows of {library}"


def test_tensorflow_is_named_in_few_files():
    files = {
        file.name
        for file in (ROOT / "server").rglob("*.py")
        if 'import_module("tensorflow' in file.read_text()
        or "import tensorflow" in file.read_text()
    }
    assert files == {"saved_model.py"}
