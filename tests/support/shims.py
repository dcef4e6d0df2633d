"""C functions that replace functions of the system in another process."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from tests.support.applies import program


def environment_with(folder: Path, source: str) -> dict[str, str]:
    """Compiles C source in `folder`; returns the environment of a process that preloads it."""
    (folder / "shim.c").write_text(source, "utf-8")
    library = folder / "shim.so"
    compiler = program("cc", "gcc")
    subprocess.run(
        [compiler, "-shared", "-fPIC", "-o", library, folder / "shim.c", "-ldl"], check=True
    )
    return {**os.environ, "LD_PRELOAD": str(library)}
