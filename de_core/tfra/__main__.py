"""Runs a program of `tfra` as it is: `python -m de_core.tfra [-m] program [arguments]`."""

from __future__ import annotations

import importlib.util
import os
import pathlib
import runpy
import sys

from de_core.tfra import alias

_USAGE = """usage: python -m de_core.tfra [-m MODULE | PROGRAM] [ARGUMENT ...]

Runs a Python program in which `import tensorflow_recommenders_addons` finds de_core.tfra.
Programs of tfra use tf_keras, so TF_USE_LEGACY_KERAS=1 is the default if tf_keras is installed.
Set TF_USE_LEGACY_KERAS=0 to run with Keras 3.
"""
_KERAS = "TF_USE_LEGACY_KERAS"


def main(arguments: list[str]) -> int:
    """Runs the program. Returns 2 for a wrong command line."""
    if arguments[:1] in (["-h"], ["--help"]):
        print(_USAGE, end="")
        return 0
    is_module = arguments[:1] == ["-m"]
    arguments = arguments[is_module:]
    if not arguments or (not is_module and not pathlib.Path(arguments[0]).exists()):
        wrong = f"No such program: {arguments[0]!r}." if arguments else "Name a program."
        print(f"{_USAGE}\n{wrong}", file=sys.stderr)
        return 2
    if _KERAS not in os.environ and importlib.util.find_spec("tf_keras") is not None:
        # This process has imported Keras 3 already. Start again.
        os.environ[_KERAS] = "1"
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])
    alias.install()
    sys.argv = arguments
    if is_module:
        runpy.run_module(arguments[0], run_name="__main__", alter_sys=True)
    else:
        sys.path[0] = str(pathlib.Path(arguments[0]).resolve().parent)
        runpy.run_path(arguments[0], run_name="__main__")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
