"""The command's own error, and the one line that a user sees of any expected error."""

from __future__ import annotations

import sys


class CommandError(Exception):
    """A verb cannot do its work. The message is one sentence with the remedy."""


def expected() -> tuple[type[BaseException], ...]:
    """Returns the errors that bad input, a full disk or a missing package cause."""
    found: tuple[type[BaseException], ...] = (
        CommandError,
        OSError,
        ValueError,
        TypeError,
        ImportError,
        MemoryError,
    )
    tensorflow = sys.modules.get("tensorflow")
    return found if tensorflow is None else (*found, tensorflow.errors.OpError)


def line_of(error: BaseException) -> str:
    """Returns an error's message on one line."""
    if "tensorflow" in sys.modules and "de_core" in sys.modules:
        from de_core.base.error_text import error_text

        text = error_text(error)
    else:
        text = str(error)
    return " ".join(text.split()) or type(error).__name__
