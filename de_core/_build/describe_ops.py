"""Writes ``_de_ops.json``: how the op library was compiled, for the check at import.

CMake calls it after each link, so that the digest is the one of the sources that were compiled.
"""

from __future__ import annotations

import json
import pathlib
import runpy
import sys


def main(file: str, tensorflow: str, distribution: str, compiler: str) -> None:
    """Writes ``file``."""
    package = pathlib.Path(__file__).resolve().parent.parent
    environment = runpy.run_path(str(package / "base" / "environment.py"))
    build = environment["Build"](
        tensorflow, distribution, compiler, environment["source_digest"](package)
    )
    pathlib.Path(file).write_text(json.dumps(build._asdict()) + "\n", "utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
