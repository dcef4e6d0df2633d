"""The library `shims.c`, which replaces functions of the system in other processes."""

import ctypes
import os
import subprocess
from pathlib import Path

from tests.support.applies import program


def compile_shims(folder: Path) -> str:
    """Compiles the library in `folder`, and returns its path, for LD_PRELOAD."""
    library = folder / "shims.so"
    source = Path(__file__).with_suffix(".c")
    compiler = program("cc", "gcc")
    subprocess.run([compiler, "-O1", "-shared", "-fPIC", "-o", library, source], check=True)
    return str(library)


def shims() -> ctypes.CDLL:
    """Returns the library, in a process that preloads it."""
    return ctypes.CDLL(os.environ["LD_PRELOAD"])
