"""Imports `de_core` for the verbs that need it, and tells an error in one line."""

from __future__ import annotations

import os
import re
import sys

# The graph location that TensorFlow adds around an op's own message.
_AROUND = re.compile(r"^(\{\{[^}]*\}\}\s*)+|\s*\[Op:\w+\](\s*name:\s*\S*)?\s*$")


def load() -> None:
    """Imports `de_core`, and hides the log lines that TensorFlow prints meanwhile.

    TensorFlow 2.21 prints some log lines for any value of `TF_CPP_MIN_LOG_LEVEL`. Among them, a
    user would overlook the command's own one-line error.

    Raises:
        ImportError: The ops or TensorFlow are missing or do not fit. The message has the remedy.
    """
    if "de_core" in sys.modules:
        return
    sys.stderr.flush()
    kept = os.dup(2)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        import de_core  # noqa: F401
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)


class CommandError(Exception):
    """A verb cannot do its work. The message is one sentence with the remedy."""


def line_of(error: BaseException) -> str:
    """Returns an error's message on one line, without the graph location that TensorFlow adds."""
    message = getattr(error, "message", None)  # only TensorFlow's errors have one
    text = str(error) if message is None else _AROUND.sub("", message)
    return " ".join(text.split()) or type(error).__name__
